"""Who receives a subject: the router, its clients, subscriptions and permissions."""
