"""The OpenAI API's requests and answers, with vLLM's additions: validated, and written."""
