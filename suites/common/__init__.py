"""What several suites share: data files, prompts about occupations, expressions of gender and their probabilities.

Takes the papers' material and the scores of a prompt; gives prompts, rows of group probabilities, contrasts of rows.
"""
