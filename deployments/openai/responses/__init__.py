"""OpenAI's Responses API, text only: a request is translated to a chat, the answer written anew."""
