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
    """Prompt and new tokens of all choices of all prompts together."""

    def check(self, job: Job, prompt_field: str, length_field: str) -> Job:
        """The same job; the fields are those that its body has for them. Raises RequestError or
        PromptTooLong."""
        num_choices, num_prompts = len(job.requests), job.num_prompts
        if self.max_n is not None and num_choices > self.max_n:
            if num_prompts == 1:
                raise RequestError("n", f"n must be at most {self.max_n} here, got {num_choices}")
            raise RequestError(
                prompt_field,
                f"{prompt_field} may ask for at most {self.max_n} choices here, got {num_prompts} "
                f"prompts with n {num_choices // num_prompts}",
            )
        longest = max(len(request.prompt_token_ids) for request in job.firsts)
        if self.max_prompt_tokens is not None and longest > self.max_prompt_tokens:
            raise PromptTooLong(
                prompt_field,
                f"{prompt_field} has {longest} tokens; the limit here is {self.max_prompt_tokens}",
            )
        total = sum(len(r.prompt_token_ids) + r.sampling.max_tokens for r in job.requests)
        if self.max_total_tokens is not None and total > self.max_total_tokens:
            raise RequestError(
                length_field,
                f"n x (prompt + {length_field}), over all prompts, must be at most "
                f"{self.max_total_tokens} tokens here, got {total}",
            )
        return job
