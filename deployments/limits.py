"""What one request may ask for, whatever the model could do."""

from dataclasses import dataclass

from deployments.generation.job import Job
from engine.errors import PromptTooLong, RequestError


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit but the engine's own."""

    max_prompt_tokens: int | None = None
    max_n: int | None = None
    max_total_tokens: int | None = None
    """Prompt and new tokens of all choices together."""

    def check(self, job: Job, prompt_field: str) -> Job:
        """The same job. Raises RequestError or PromptTooLong."""
        num_prompt, num_choices = job.num_prompt_tokens, len(job.requests)
        if self.max_n is not None and num_choices > self.max_n:
            raise RequestError("n", f"n must be at most {self.max_n} here, got {num_choices}")
        if self.max_prompt_tokens is not None and num_prompt > self.max_prompt_tokens:
            raise PromptTooLong(
                prompt_field,
                f"{prompt_field} has {num_prompt} tokens; the limit here is "
                f"{self.max_prompt_tokens}",
            )
        if self.max_total_tokens is not None:
            num_new = job.requests[0].sampling.max_tokens
            total = num_choices * (num_prompt + num_new)
            if total > self.max_total_tokens:
                raise RequestError(
                    "max_tokens",
                    f"n x (prompt + max_tokens) must be at most {self.max_total_tokens} tokens "
                    f"here, got {num_choices} x ({num_prompt} + {num_new}) = {total}",
                )
        return job
