"""Redis or Valkey: the registry of routes and the report streams."""
