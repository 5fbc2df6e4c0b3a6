"""Groups as data: any number of them, the expressions of each, and contrasts of their probabilities.

Takes the groups that a user declares; gives the expressions of each prompt, and the shares and contrasts of an answer.
"""
