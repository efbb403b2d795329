"""Pictures of the console for the documentation, of a running application under a little traffic.

    python -m benchmarks.console_pictures --url http://127.0.0.1:8000 --out docs

Meanwhile 1 to `MOST_CLIENTS` requests run at once, so that batch size, length and pace move.
Needs Chromium (on Debian: apt-get install chromium).
"""

import argparse
import asyncio
import io
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from PIL import Image
from playwright.async_api import Page, async_playwright

MOST_CLIENTS = 6
MAX_TOKENS = 160
QUESTIONS = (
    "Write a Python function that returns the n-th Fibonacci number.",
    "What is photosynthesis? Explain it step by step.",
    "List five rules for writing clear documentation.",
    "Tell me about the history of the steam engine.",
)
ASKED = "Write a Python class for a stack with push, pop and peek, and show how to use it."
COLOURS = 256
WIDE, NARROW = (1280, 900), (390, 844)


@asynccontextmanager
async def traffic(url: str) -> AsyncIterator[None]:
    """Waves of 1, 2, ... requests at once, while this is open."""
    questions = itertools.cycle(QUESTIONS)

    async def waves(http: httpx.AsyncClient) -> None:
        model = (await http.get("/v1/models")).json()["data"][0]["id"]
        settings = {"model": model, "max_tokens": MAX_TOKENS, "temperature": 0}
        for size in itertools.cycle(range(1, MOST_CLIENTS + 1)):
            asked = [{"role": "user", "content": next(questions)} for _ in range(size)]
            await asyncio.gather(
                *(
                    http.post("/v1/chat/completions", json=settings | {"messages": [one]})
                    for one in asked
                )
            )

    async with httpx.AsyncClient(base_url=url, timeout=None) as http:
        asking = asyncio.create_task(waves(http))
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.wait({asking})


async def take_pictures(url: str, out: Path, minutes: float) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    async with async_playwright() as playwright, traffic(url):
        browser = await playwright.chromium.launch(executable_path=chromium)
        page = await browser.new_page(viewport={"width": WIDE[0], "height": WIDE[1]})
        await page.goto(f"{url}/console")
        await asyncio.sleep(60 * minutes)
        await page.fill("#prompt", ASKED)
        await page.press("#prompt", "Enter")
        await page.wait_for_selector("#stop:disabled", timeout=0)
        await page.locator("#tables summary").first.click()
        await picture(page, out / "console-light.png", "light", WIDE)
        await picture(page, out / "console-dark.png", "dark", WIDE)
        await picture(page, out / "console-narrow.png", "light", NARROW)
        await browser.close()


async def picture(page: Page, path: Path, scheme: str, size: tuple[int, int]) -> None:
    """Of the whole page, once it has been drawn at this size."""
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.set_viewport_size({"width": size[0], "height": size[1]})
    await page.evaluate("document.activeElement.blur()")
    await page.locator("#log").evaluate("log => (log.scrollTop = log.scrollHeight)")
    await asyncio.sleep(2.0)
    taken = await page.screenshot(full_page=True)
    # The page has few colours, so a palette that has them all loses nothing that is seen.
    with Image.open(io.BytesIO(taken)) as image:
        palette = image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
        palette.save(path, optimize=True)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--minutes", type=float, default=2.0, help="of traffic before the pictures")
    arguments = parser.parse_args()
    asyncio.run(take_pictures(arguments.url, arguments.out, arguments.minutes))


if __name__ == "__main__":
    main()
