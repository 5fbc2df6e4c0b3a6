"""OccuGender: which gender a model has in mind with an occupation."""
