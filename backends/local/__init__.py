"""What the engines in this process share.

Takes requests, a tokenizer and an engine that scores token paths or writes texts. Gives scores, texts and the model's
identity: the boundary between prompt and continuation, tries of shared prompts, chat templates, GGUF headers, hashes.
"""
