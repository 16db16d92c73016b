"""The JetStream API: requests on $JS.API and their JSON, one module per noun."""
