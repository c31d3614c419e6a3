"""Labels for data that have none: from a judge, or from known answers."""
