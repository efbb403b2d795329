"""The page in a headless Chromium, over a tiny engine that really serves."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright, expect

from deployments.api import create_api
from deployments.api_keys import KeyRing
from tests.deployments.api_app import App, tokens
from tests.deployments.console.live_app import REPLICA, live_app, served
from tests.deployments.console.several_replicas import FAILURE, SeveralReplicas, publisher
from tests.tiny_tokenizer import byte_level_tokenizer

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
WAIT_MS = 60_000.0
LONG = "3900"
DRAFTING = {"fixed": 4}
"""The adaptive policy may find, rightly, that drafts of a random model don't pay."""
WIDE, NARROW = (1280, 900), (390, 844)

pytestmark = [
    pytest.mark.skipif(
        not CHROMIUM, reason="no Chromium on this machine (on Debian: apt-get install chromium)"
    ),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def url(model: Path) -> AsyncIterator[str]:
    async with live_app(model) as app, served(app) as url:
        yield url


@asynccontextmanager
async def opened(
    browser: Browser, url: str, size: tuple[int, int] = WIDE, scheme: str = "light"
) -> AsyncIterator[Page]:
    """The page in a browser that knows nothing yet. Any error in it fails the test."""
    async with AsyncExitStack() as stack:
        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        stack.push_async_callback(context.close)
        context.set_default_timeout(WAIT_MS)
        page = await context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if is_fault(said.text) else None)
        await page.goto(f"{url}/console")
        yield page
        assert faults == []


def is_fault(said: str) -> bool:
    return "Content Security Policy" in said or "Refused to" in said


async def ask(page: Page, text: str, max_tokens: str = "32") -> None:
    await expect(page.locator("#send")).to_be_enabled()
    await page.fill("#max-tokens", max_tokens)
    await page.fill("#prompt", text)
    await page.press("#prompt", "Enter")


async def ended(page: Page) -> str:
    """What the page says under the last answer, once it has ended."""
    await expect(page.locator("#stop")).to_be_disabled()
    return await page.locator(".message-note").last.inner_text()


async def running(url: str) -> int:
    async with httpx.AsyncClient() as client:
        number: int = (await client.get(f"{url}/health")).json()["engine"]["num_running"]
        return number


async def test_an_answer_streams_with_its_drafts_marked_and_counted(
    browser: Browser, model: Path
) -> None:
    async with (
        live_app(model, policy=DRAFTING) as app,
        served(app) as url,
        opened(browser, url) as page,
    ):
        await ask(page, "One two three, one two three", max_tokens="400")
        await expect(page.locator(".token").nth(5)).to_be_visible()
        await expect(page.locator("#send")).to_be_disabled()
        note = await ended(page)
        counted = re.search(r"^(\d+) tokens .* (\d+) of (\d+) drafted kept, (\d+) rejected", note)
        assert counted, note
        num_tokens, kept, drafted, rejected = map(int, counted.groups())
        assert num_tokens == 400
        assert kept + rejected == drafted > 0
        shown = await page.locator("#log .token[data-rejected]").evaluate_all(
            "all => all.reduce((sum, one) => sum + Number(one.dataset.rejected), 0)"
        )
        assert shown == rejected
        await expect(page.locator("#announcer")).to_contain_text("400 tokens")
        async with httpx.AsyncClient() as client:
            await expect(page.locator("#replicas td").nth(1)).to_have_text("0.00")
            (replica,) = (await client.get(f"{url}/policy")).json()["replicas"]
        assert (replica["accepted_tokens"], replica["drafted_tokens"]) == (kept, drafted)


async def test_marks_can_be_hidden(browser: Browser, model: Path) -> None:
    async with (
        live_app(model, policy=DRAFTING) as app,
        served(app) as url,
        opened(browser, url) as page,
    ):
        await ask(page, "One two three, one two three", "150")
        await ended(page)
        before = await page.locator(".message-text").last.inner_text()
        await page.uncheck("#show-marks")
        looks = "one => getComputedStyle(one, '::before').content"
        number = page.locator(".token[data-rejected]")
        assert await number.first.evaluate(looks) != "none", "the legend's stays"
        assert await number.last.evaluate(looks) == "none"
        assert await page.locator(".message-text").last.inner_text() == before


async def test_stopping_frees_the_engine_and_the_conversation_goes_on(
    browser: Browser, url: str
) -> None:
    async with opened(browser, url) as page:
        await ask(page, "One two three", LONG)
        await expect(page.locator(".token").nth(20)).to_be_visible()
        await page.click("#stop")
        assert "stopped" in await ended(page)
        await expect(page.locator("#announcer")).to_contain_text("Stopped")
        await expect(page.locator("#prompt")).to_be_focused()
        while await running(url):
            pass
        await ask(page, "And then?", "8")
        assert (await ended(page)).startswith("8 tokens")
        assert await page.locator("article").count() == 4
        await page.click("#clear")
        assert await page.locator("article").count() == 0
        await expect(page.locator("#prompt")).to_be_focused()


@asynccontextmanager
async def load(url: str) -> AsyncIterator[None]:
    """One sequence decodes, nearly always, as long as this is open."""

    async def ask_again_and_again() -> None:
        body = {"model": "tiny", "prompt": "One two three, one two three", "max_tokens": int(LONG)}
        async with httpx.AsyncClient(base_url=url, timeout=None) as client:
            while True:
                await client.post("/v1/completions", json=body)

    asking = asyncio.create_task(ask_again_and_again())
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.wait({asking})


async def test_the_plots_move_and_the_replica_is_shown(browser: Browser, model: Path) -> None:
    async with (
        live_app(model, policy=DRAFTING) as app,
        served(app) as url,
        opened(browser, url) as page,
    ):
        await expect(page.locator("#connection")).to_have_text("live, 1 of 1 replicas ready")
        batch = page.locator("#plot-batch svg")
        trace = page.locator("#plot-batch path.trace").first
        async with load(url):
            says = re.compile(r"^Batch size: now 1 decoding")
            await expect(batch).to_have_attribute("aria-label", says)
            before = await trace.get_attribute("d")
            assert before is not None
            await expect(trace).not_to_have_attribute("d", before)
            says = re.compile(r"ms with the table, .* ms at length 0, .*× as fast")
            await expect(page.locator("#plot-pace svg")).to_have_attribute("aria-label", says)
            says = re.compile(r"now 4 tokens; at most 4")
            await expect(page.locator("#plot-length svg")).to_have_attribute("aria-label", says)
            says = re.compile(r"position 4: \d+ of \d+ kept")
            await expect(page.locator("#plot-acceptance svg")).to_have_attribute("aria-label", says)
            assert await page.locator("#plot-acceptance rect.bar").count() == 4
            await expect(page.locator("#tile-batch")).to_have_text("1")
            row = page.locator("#replicas tbody tr")
            await expect(row).to_have_count(1)
            await expect(row.locator("th")).to_have_text(REPLICA)
            await expect(row.locator("td").first).to_have_text("ready")
            await expect(page.locator("#tables .now")).to_have_text("now")
        await expect(page.locator("#tile-batch")).to_have_text("0")
        await expect(page.locator("#plot-batch .key")).to_have_text("0 decoding")
        # Who points at the beginning of the line is told of it, with its time.
        box = await trace.bounding_box()
        assert box is not None
        await page.mouse.move(box["x"], box["y"] + 20)
        await expect(page.locator("#plot-batch .key")).to_contain_text(re.compile(r"^\d+ s ago: "))
        await page.mouse.move(0, 0)
        await expect(page.locator("#plot-batch .key")).to_have_text("0 decoding")


async def test_the_table_in_force_and_its_history_follow_the_policy(
    browser: Browser, model: Path
) -> None:
    async with live_app(model) as app, served(app) as url, opened(browser, url) as page:
        await expect(page.locator("#table-source")).to_contain_text("adaptive, measured")
        why = page.locator("#tables details").first
        await expect(why.locator("li").first).to_be_hidden()
        await why.locator("summary").click()
        await expect(why.locator("li").first).to_contain_text("tokens a round")
        await expect(page.locator("#history")).to_contain_text("first table of measured cost")
        async with httpx.AsyncClient() as client:
            await client.put(f"{url}/policy", json={"policy": {"fixed": 3}})
        await expect(page.locator("#table-source")).to_contain_text("fixed, set by hand")
        await expect(page.locator("#history li").first).to_contain_text("3 at any")
        await expect(page.locator("#tables .rungs td.number").first).to_have_text("3")


async def test_light_and_dark(browser: Browser, url: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    async with opened(browser, url, scheme="dark") as page:
        dark = await page.evaluate(ground)
        await expect(page.locator("#theme-button")).to_have_text("Light")
        await page.click("#theme-button")
        light = await page.evaluate(ground)
        assert light != dark
        await page.reload()
        assert await page.evaluate(ground) == light, "what was chosen is remembered"
    async with opened(browser, url, scheme="light") as page:
        assert await page.evaluate(ground) == light, "at first it is as the system's"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_nothing_is_wider_than_the_window(
    browser: Browser, url: str, size: tuple[int, int]
) -> None:
    async with opened(browser, url, size) as page:
        await ask(page, "x" * 300)
        await ended(page)
        await expect(page.locator("#tables .rungs")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]
        boxes = await page.locator("main > section").evaluate_all(
            "all => all.map((one) => one.getBoundingClientRect().toJSON())"
        )
        assert all(box["left"] >= 0 and box["right"] <= size[0] for box in boxes)
        is_one_column = len({round(box["left"]) for box in boxes}) == 1
        assert is_one_column == (size == NARROW)


async def test_everything_can_be_done_with_the_keyboard(browser: Browser, url: str) -> None:
    async with opened(browser, url) as page:
        await expect(page.locator("#send")).to_be_enabled()
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("#prompt")).to_be_focused()
        await page.keyboard.type("One")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("two")
        reached = []
        for _ in range(7):
            await page.keyboard.press("Tab")
            reached.append(await page.evaluate("document.activeElement.id"))
        assert reached[:6] == ["temperature", "max-tokens", "drafts", "show-marks", "clear", "send"]
        await page.keyboard.press("Shift+Tab")
        await page.fill("#max-tokens", LONG)
        await page.focus("#send")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message.mine .message-text")).to_have_text("One\ntwo")
        await expect(page.locator("#log .token").nth(5)).to_be_visible()
        await page.keyboard.press("Escape")
        assert "stopped" in await ended(page)


async def test_a_key_is_asked_for_and_stays_in_the_tab(browser: Browser, model: Path) -> None:
    keys = KeyRing(None, {"PACELINE_API_KEYS": "ann: sesame"})
    async with (
        live_app(model, keys) as app,
        served(app) as url,
        opened(browser, url) as page,
    ):
        dialog = page.locator("#key-dialog")
        await expect(dialog).to_be_visible()
        await expect(page.locator("#key-reason")).to_contain_text("An API key is needed")
        assert await page.locator("#model").inner_text() == ""
        await expect(page.locator("#key")).to_be_focused()
        await page.keyboard.type("wrong")
        await page.keyboard.press("Enter")
        await expect(page.locator("#key-reason")).to_contain_text("The API key is not valid here")
        await expect(page.locator("#key")).to_be_focused()
        await page.keyboard.insert_text("сезам")  # no header can carry it
        await page.keyboard.press("Enter")
        await expect(page.locator("#key-reason")).to_contain_text("signs of ASCII alone")
        await page.fill("#key", "")
        await page.keyboard.type("sesame")
        await page.keyboard.press("Enter")
        await expect(page.locator("#model")).to_contain_text("tiny")
        await expect(dialog).to_be_hidden()
        await ask(page, "One", "4")
        assert (await ended(page)).startswith("4 tokens")
        assert await page.evaluate("Object.values(sessionStorage)") == ["sesame"]
        assert "sesame" not in await page.evaluate("JSON.stringify(localStorage) + document.cookie")
        assert "sesame" not in page.url
        await page.reload()
        await expect(page.locator("#model")).to_contain_text("tiny")


async def test_what_the_model_says_is_text_and_never_markup(browser: Browser) -> None:
    evil = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>&amp;"
    tokenizer = byte_level_tokenizer()
    app = App(tokenizer, tokens(tokenizer, evil), max_model_len=512)
    async with app.served() as url, opened(browser, url) as page:
        await ask(page, "<b>bold</b>", "500")
        await ended(page)
        await expect(page.locator(".message-text").last).to_have_text(evil)
        await expect(page.locator(".message.mine .message-text")).to_have_text("<b>bold</b>")
        assert await page.locator("#log").locator("script, img, b").count() == 0
        assert await page.evaluate("window.hacked === undefined")


async def test_a_refused_request_is_told_and_taken_back(browser: Browser, url: str) -> None:
    async with opened(browser, url) as page:
        await ask(page, "word " * 5000)
        await expect(page.locator(".message.error")).to_contain_text("leaves no room for an answer")
        await expect(page.locator("#announcer")).to_contain_text("Failed")
        await ask(page, "One", "4")
        assert (await ended(page)).startswith("4 tokens")


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
async def test_accessibility_rules_hold(
    browser: Browser, url: str, size: tuple[int, int], scheme: str
) -> None:
    async with opened(browser, url, size, scheme) as page:
        await ask(page, "One two three, one two three", "64")
        await ended(page)
        await page.locator("#tables summary").first.click()
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        await page.click("#key-button")
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@asynccontextmanager
async def of_several_replicas(browser: Browser) -> AsyncIterator[tuple[Page, SeveralReplicas]]:
    """The page, once it has all three of them, of which one has failed."""
    tokenizer = byte_level_tokenizer()
    app = App(tokenizer, tokens(tokenizer, "x"))
    policy = SeveralReplicas(await publisher())
    asgi = create_api(lambda: app.service, lambda: policy)
    async with served(asgi) as url, opened(browser, url) as page:
        await expect(page.locator("#connection")).to_have_text("live, 2 of 3 replicas ready")
        yield page, policy


async def test_several_replicas_and_the_loss_of_the_policy_actor(browser: Browser) -> None:
    async with of_several_replicas(browser) as (page, policy):
        await expect(page.locator("#tile-rate")).to_have_text("300")
        await expect(page.locator("#tile-batch")).to_have_text("8")
        await expect(page.locator("#tile-length")).to_have_text("3")
        await expect(page.locator("#tile-kept")).to_have_text("75 %")
        await expect(page.locator("#plot-batch svg")).to_have_attribute(
            "aria-label", re.compile("mean of the replicas; at most 6")
        )
        assert await page.locator("#plot-batch polygon.band").count() == 1
        rows = page.locator("#replicas tbody tr")
        await expect(rows).to_have_count(3)
        await expect(rows.nth(0)).to_contain_text(f"{FAILURE}, a slow machine")
        assert await page.locator("#replicas img").count() == 0
        await expect(rows.nth(1)).to_contain_text("v2")
        await expect(rows.nth(2)).to_contain_text("v1 of v2")
        await expect(page.locator("#tables caption")).to_have_count(2)
        await expect(page.locator("#tables caption").first).to_contain_text("a fast machine")
        await expect(page.locator("#history")).to_contain_text("a slow machine")

        policy.is_reachable = False
        await expect(page.locator("#connection")).to_contain_text("is being restarted")
        await expect(rows).to_have_count(1)
        policy.is_reachable = True
        await expect(page.locator("#connection")).to_have_text("live, 2 of 3 replicas ready")

        policy.silent = {"h200-a"}
        await expect(page.locator("#connection")).to_have_text("live, 1 of 3 replicas ready")
        await expect(page.locator("#tile-rate")).to_have_text("100")
        await expect(page.locator("#tile-batch")).to_have_text("2")
        await expect(rows.nth(1)).to_contain_text("silent")


async def test_a_server_that_takes_questions_and_never_answers_is_told_of(browser: Browser) -> None:
    async with of_several_replicas(browser) as (page, policy):
        policy.answers.clear()
        await expect(page.locator("#connection")).to_contain_text("no answer", timeout=30_000)
        policy.answers.set()
        await expect(page.locator("#connection")).to_have_text("live, 2 of 3 replicas ready")
