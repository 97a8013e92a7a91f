"""What runs beside requests: consumer, operations, reconciliation. It stands on the engine."""
