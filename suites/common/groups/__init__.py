"""Groups as data: any number of them, each one's expressions, contrasts of their probabilities.

Takes what a user declares of groups; gives the expressions of each prompt, and the shares and contrasts of an answer.
"""
