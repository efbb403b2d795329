"""What `engine/grammar.py` needs to know about tokenizers and about each kind of grammar."""
