"""A page in headless Chromium, opened from disk; records its network requests and console messages.
Restarts under Debian's Python if the one in use does not have Selenium. Ends the test that imports it with "not run:" where
Selenium, Chromium or chromedriver is absent."""
import base64
import json
import os
import pathlib
import shutil
import sys
import time


def not_run(what):
    print(f"not run: pages in Chromium, {what} is absent (bash tools/setup.sh)")
    sys.exit(0)


try:
    from selenium import webdriver
except ImportError:
    debian = "/usr/bin/python3"
    if os.path.realpath(sys.executable) == os.path.realpath(debian) or not os.path.exists(debian):
        not_run("Selenium")
    os.execv(debian, [debian, *sys.argv])
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

PROGRAMS = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
for program, path in PROGRAMS.items():
    if path is None:
        not_run(program)


class Browser:
    def __init__(self, downloads, width=1280, height=1000):
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                         "--force-color-profile=srgb", f"--window-size={width},{height}"):
            options.add_argument(argument)
        options.binary_location = PROGRAMS["chromium"]
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.chrome.service.Service(PROGRAMS["chromedriver"])
        self.driver = webdriver.Chrome(service=service, options=options)
        self.downloads = pathlib.Path(downloads)
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def command(self, name, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    def size(self, width, height=1000):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def blank(self):
        """Leaves the page, whose charts would be drawn again for another size."""
        self.driver.get("about:blank")

    def prefer(self, scheme):
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path):
        """True if the page's script has finished in time."""
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(pathlib.Path(path).resolve().as_uri())
        return self.wait(lambda: self.js("return document.body.dataset.ready") == "yes")

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.05)
        return False

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def choose(self, selector, value):
        Select(self.one(selector)).select_by_value(value)

    def options(self, selector):
        return [option.get_attribute("value") for option in Select(self.one(selector)).options]

    def click(self, selector):
        self.js("arguments[0].scrollIntoView({block: 'center'})", self.one(selector))
        self.one(selector).click()

    def hover(self, selector, x, y):
        """Moves the mouse over an element to (x, y) from its upper left corner."""
        node = self.one(selector)
        self.js("arguments[0].scrollIntoView({block: 'center'})", node)
        box = node.rect
        actions = ActionChains(self.driver)
        for nudge in (3, 0):  # offsets are from the centre
            actions.move_to_element_with_offset(node, round(x - box["width"] / 2) + nudge, round(y - box["height"] / 2))
        actions.perform()

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def network(self):
        """The addresses that the page requested from the network."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]

    def download(self, selector, name):
        """The text of the file that a click downloads. Clicks again if none begins: the click was lost because a chart was
        resizing, or the machine is busy. Chromium reserves the name with an empty file until the download is complete."""
        path = self.downloads / name
        part = path.with_name(name + ".crdownload")
        path.unlink(missing_ok=True)  # of a click that was not lost
        for patience in (1, 3, 10):
            self.click(selector)
            if self.wait(lambda: path.exists() or part.exists(), patience) and self.wait(
                    lambda: path.exists() and path.stat().st_size > 0 and not part.exists(), 10):
                text = path.read_text()
                path.unlink()
                return text
        raise AssertionError(f"no download of {name} after a click on {selector}")

    def picture(self, path, top=0, height=1000):
        width = self.js("return innerWidth")
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True,
                            clip={"x": 0, "y": top, "width": width, "height": height, "scale": 1})
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))
