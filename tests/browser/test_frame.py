"""The frame around the screens: navigation, keyboard, strip, key, an API that goes and comes back."""

import re
from hashlib import sha256

from playwright.sync_api import Page, expect

from tests.browser.console import NARROW, Console, assert_fine, strip
from tests.processes import ApiProcess


def known(key: str) -> str:
    return f"{key.replace('key ', 'owner')}:{sha256(key.encode()).hexdigest()}"


def submit(api: ApiProcess, name: str, key: str) -> None:
    """A task of the key's owner."""
    body = {"input": ["a text", "another"], "metadata": {"name": name}}
    with api.client() as client:
        client.post("/v1/tasks", json=body, headers={"x-api-key": key}).raise_for_status()


def enter(page: Page, key: str) -> None:
    page.get_by_label("API key", exact=True).fill(key)
    page.keyboard.press("Enter")


def test_all_of_it_is_reached_by_the_keyboard(console: Console) -> None:
    page = console.open(path="/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    expect(strip(page)).to_contain_text("1 worker")
    reached = []
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", f"{reached[-1]} does not show that it has the focus"
    assert reached == ["Skip to the content", "embedq", "Jobs", "Datasets", "Service", "Try it", "Service"]
    page.get_by_role("link", name="Skip to the content").press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"

    for label in ("Service", "Try it", "Datasets", "Jobs"):
        page.get_by_role("navigation", name="Screens").get_by_role("link", name=label).press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text(label)
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        expect(page).to_have_title(f"{label} · embedq")
        expect(page.locator("[aria-current=page]")).to_have_text(label)
    page.goto(f"{console.stack.api.base_url}/console#/nothing")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    page.goto(f"{console.stack.api.base_url}/console#/jobs/%E0%A4%A")
    expect(page.get_by_role("heading", name="This job is not there")).to_be_visible()


def test_a_browser_without_scripts_is_told_what_to_do(console: Console) -> None:
    page = console.open(java_script_enabled=False)

    expect(page.get_by_role("heading", level=1)).to_have_text("embedq")
    expect(page.locator("noscript .cmd")).to_have_text("embedq jobs")
    expect(page.get_by_role("link", name="The OpenAPI document")).to_have_attribute("href", "openapi.json")


def test_keys_that_are_missing_wrong_and_removed_and_an_api_that_restarts(console: Console) -> None:
    console.calls_may_fail, stack = True, console.stack
    keyed = stack.roles.api(api_keys=known("key 1"), storage_url=stack.api.settings["storage_url"])
    page = console.open("#/jobs?kind=task", base=keyed.base_url, size=NARROW)
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in with an API key")
    expect(page.get_by_label("API key", exact=True)).to_be_focused()
    expect(page.get_by_role("navigation")).to_have_count(0)
    assert_fine(page)
    enter(page, "wrong \N{EN DASH} pasted")  # of which no header can be made
    expect(page.get_by_role("alert").last).to_contain_text("signs of ASCII only.")
    with page.expect_response(lambda answer: answer.status == 401):
        enter(page, "wrong")
    expect(page.get_by_role("alert").last).to_contain_text("This API key is not known here.")
    enter(page, "key 1")
    expect(page.get_by_role("heading", name="No job fits")).to_be_visible()
    expect(page.get_by_role("banner")).to_contain_text("key owner1")
    expect(page.get_by_label("Kind", exact=True)).to_have_value("task")
    page.get_by_role("link", name="Show all jobs").click()
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    submit(keyed, "of the first key", "key 1")
    expect(page.get_by_role("link", name="of the first key")).to_be_visible()

    keyed.stop()
    expect(strip(page)).to_contain_text("The API does not answer since")
    expect(page.get_by_role("alert")).to_have_text("The API does not answer.")
    expect(page).to_have_title(re.compile(r"^\(!\) Jobs"))
    expect(page.get_by_role("link", name="of the first key")).to_be_visible()
    keyed.settings["api_keys"] = known("key 2")
    keyed.start()
    # It reads everything anew by itself, and learns that its key is not known any more.
    expect(page.get_by_role("alert").last).to_contain_text("This API key is not known here.")
    enter(page, "key 2")
    expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
    submit(keyed, "of the second key", "key 2")
    expect(page.get_by_role("link", name="of the second key")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in with an API key")
    expect(page.get_by_role("link", name="of the second key")).to_have_count(0)


def test_the_strip_says_that_work_is_refused_and_what_to_do(console: Console) -> None:
    page = console.open("#/datasets")
    expect(strip(page)).to_contain_text("Redis")
    height = strip(page).bounding_box()
    with console.stack.redis.client() as redis:
        before = redis.config_get("maxmemory")["maxmemory"]
        redis.config_set("maxmemory", int(int(redis.info("memory")["used_memory"]) / 0.8))
        try:
            expect(strip(page)).to_contain_text("tasks and queries are refused")
            expect(page.get_by_role("alert")).to_contain_text("full: tasks and queries are refused.")
            assert strip(page).bounding_box() == height, "the page below it has moved"
            page.get_by_role("link", name="What to do").click()
            expect(page.locator("main")).to_contain_text("Tasks are refused above 63 %, queries above 70 %.")
            expect(page.locator("main")).to_contain_text(re.compile("CONFIG SET maxmemory .* --user operator"))
            assert_fine(page)
        finally:
            redis.config_set("maxmemory", before)
    expect(strip(page)).not_to_contain_text("refused")


def test_without_a_worker_nothing_is_sent_and_the_list_says_why(console: Console) -> None:
    worker, stack = console.stack.worker, console.stack
    worker.stop()
    try:
        page = console.open("#/try", color_scheme="dark")
        expect(strip(page)).to_contain_text("No worker serves all-MiniLM-L6-v2 since")
        expect(page.get_by_role("form", name="Texts")).to_contain_text("Start one: embedq worker")
        expect(page.get_by_role("button", name=re.compile("^Embed"))).to_have_count(0)
        task_id = stack.submit("for nobody", "one", "two")
        page.get_by_role("link", name="Jobs").click()
        expect(page.get_by_role("listitem").filter(has_text="for nobody")).to_contain_text("waiting")
        page.get_by_label("State", exact=True).select_option("Waiting")
        page.get_by_role("link", name="for nobody").click()
        expect(page.locator("main")).to_contain_text(re.compile(r"No worker serves this model since \d\d:\d\d today"))
        assert_fine(page)
        page.get_by_role("navigation", name="Screens").get_by_role("link", name="Service").click()
        expect(page.get_by_role("table", name="Queue")).to_contain_text("no worker")
        expect(page.locator("main")).to_contain_text("nobody works on it")
    finally:
        worker.start()
    stack.wait_for_end(f"/v1/tasks/{task_id}")
