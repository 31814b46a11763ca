"""Sessions in PostgreSQL: one database that the processes of many machines share."""
