"""Who hears a subject: accounts, subscriptions, streams that capture."""
