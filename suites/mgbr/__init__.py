"""MGBR: whether occupations mislead a model that counts gendered words."""
