"""Long work that ends in rows: spread over processes or machines, kept in a file that survives whatever happens."""
