"""Chromium without a window, driven through a pipe (its DevTools protocol), for tests of the page.

    with Browser() as b:
        b.open(url)
        b.until("document.title !== ''")
        assert b.ask("1 + 1") == 2

`complaints` has what the page wrote to its console and the exceptions nobody caught, `asked_for`
the addresses of all requests. Run as a program, it opens a page and takes a picture of all of it:

    browser.py URL FILE.png WIDTH light|dark [CONDITION]"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 120
OPTIONS = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
           "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
           "--disable-breakpad", "--disable-crash-reporter",
           "--disable-background-networking", "--disable-component-update", "--disable-sync",
           "--hide-scrollbars", "about:blank"]


def program():
    """Returns the path of Chromium or Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def pipe():
    """Returns both ends of a pipe, as descriptors above 9."""
    low = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low]
    for end in low:
        os.close(end)
    return high


class Browser:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        orders, self.orders = pipe()
        self.answers, answers = pipe()
        # It reads orders from descriptor 3 and answers on 4.
        start = f'exec "$@" 3<&{orders} 4>&{answers} {orders}<&- {answers}>&-'
        self.process = subprocess.Popen(
            ["bash", "-c", start, "bash", program(), f"--user-data-dir={self.folder.name}/profile",
             *OPTIONS], pass_fds=(orders, answers), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "HOME": self.folder.name})
        os.close(orders)
        os.close(answers)
        self.rest, self.number, self.session = b"", 0, None
        self.complaints, self.asked_for = [], []
        target = self.order("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.order("Target.attachToTarget", targetId=target,
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.order(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self.orders)  # it ends when nobody can give it orders
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        subprocess.run(["pkill", "-KILL", "-s", str(self.process.pid)], check=False)
        self.process.wait()
        os.close(self.answers)
        self.folder.cleanup()

    def message(self, until):
        while b"\0" not in self.rest:
            if not select.select([self.answers], [], [], max(0, until - time.time()))[0]:
                raise TimeoutError("the browser is silent")
            some = os.read(self.answers, 1 << 20)
            if not some:
                raise EOFError("the browser has ended")
            self.rest += some
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        kind, what = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(what["exceptionDetails"])[:2000])
        elif kind == "Runtime.consoleAPICalled" or kind == "Log.entryAdded":
            self.complaints.append(json.dumps(what)[:2000])
        elif kind == "Network.requestWillBeSent":
            self.asked_for.append(what["request"]["url"])

    def order(self, method, **params):
        """Gives an order and returns its result."""
        self.number += 1
        order = {"id": self.number, "method": method, "params": params}
        if self.session:
            order["sessionId"] = self.session
        os.write(self.orders, json.dumps(order).encode() + b"\0")
        until = time.time() + PATIENCE_S
        while True:
            message = self.message(until)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def ask(self, expression):
        """Returns the value of a JavaScript expression on the page."""
        result = self.order("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, condition):
        """Waits until a JavaScript expression is true on the page."""
        end = time.time() + PATIENCE_S
        while not self.ask(f"Boolean({condition})"):
            if time.time() > end:
                raise TimeoutError(f"not true in {PATIENCE_S} s: {condition}")
            time.sleep(0.1)

    def open(self, url):
        self.order("Page.navigate", url=url)

    def look(self, width, scheme="light", height=900):
        """The width of the window, and whether the user likes it light or dark."""
        self.order("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=False)
        self.order("Emulation.setEmulatedMedia",
                   features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key, code=0, text=None):
        """Presses and releases a key, as a keyboard does."""
        for kind in ("keyDown", "keyUp"):
            self.order("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                       windowsVirtualKeyCode=code,
                       **({"text": text} if text and kind == "keyDown" else {}))

    def picture(self, file):
        data = self.order("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(file, "wb") as out:
            out.write(base64.b64decode(data))


def main():
    url, file, width, scheme = sys.argv[1:5]
    with Browser() as browser:
        browser.look(int(width), scheme)
        browser.open(url)
        browser.until(sys.argv[5] if len(sys.argv) > 5 else "document.querySelector('#runs li')")
        time.sleep(1)  # all that is there has been drawn
        browser.picture(file)


if __name__ == "__main__":
    main()
