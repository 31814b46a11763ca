"""Who may do what: tokens, logins and access to sessions."""
