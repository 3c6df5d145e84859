"""The page of a run in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nights_cases import nights_of
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from autoopt.json_codec import JsonValue
from autoopt.metrics import Estimate
from autoopt.report.run_page import html_report
from autoopt.results import RunResult, Trial
from autoopt.zoo.nights import history_of
from autoopt.zoo.nights_report import nights_html

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("there is no chromium with chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(option)
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield window
    window.quit()


@pytest.fixture
def shown(chromium: webdriver.Chrome, result: RunResult, trials: list[Trial], tmp_path: Path) -> webdriver.Chrome:
    """The browser with the page of a run whose last trial is not on the front."""
    ratios = {name: Estimate.exact(0.6) for name in trials[2].ratios}
    other = replace(trials[2], number=3, chain="graph", ratios=ratios)
    page = tmp_path / "report.html"
    page.write_text(html_report(result, [*trials, other]), encoding="utf-8")
    chromium.get(page.as_uri())
    return chromium


def set_width(browser: webdriver.Chrome, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_width(shown: webdriver.Chrome, width: int) -> None:
    set_width(shown, width)
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width
    visible = [svg for svg in shown.find_elements(By.CSS_SELECTOR, "figure svg") if svg.is_displayed()]
    figures = shown.find_elements(By.CSS_SELECTOR, "figure")
    assert len(visible) == len(figures) > 0


def test_all_columns_of_the_trials_fit_into_1280_pixels(
    chromium: webdriver.Chrome, result: RunResult, trials: list[Trial], tmp_path: Path
) -> None:
    params: dict[str, JsonValue] = {
        "activation_type": "QUInt8",
        "calibrate_method": "MinMax",
        "op_types": ["Conv", "Gemm", "MatMul"],
    }
    reason = "accuracy drop of at most 0.01 is not certain: better by 0.003 (95 %: better by 0.018 to worse by 0.011)"
    long = replace(
        trials[2],
        number=3,
        chain="names -> simplify -> static",
        point={"simplify": {"engine": "onnxslim"}, "static": params},
        reasons=(reason,),
    )
    page = tmp_path / "report.html"
    page.write_text(html_report(result, [*trials, long]), encoding="utf-8")
    set_width(chromium, 1280)
    chromium.get(page.as_uri())
    table = chromium.find_element(By.ID, "all-trials")
    room = chromium.execute_script("return arguments[0].parentElement.clientWidth", table)
    assert table.size["width"] <= room


def test_a_point_shows_its_trial_and_leads_to_it(shown: webdriver.Chrome) -> None:
    set_width(shown, 1280)
    point = shown.find_element(By.CSS_SELECTOR, 'svg.wide a[*|href="#trial-3"] path')
    ActionChains(shown).scroll_to_element(point).move_to_element(point).perform()
    assert shown.find_element(By.ID, "tip").text.startswith("trial 3: graph")
    point.click()
    assert shown.current_url.endswith("#trial-3")


def test_trials_are_sorted_and_filtered(shown: webdriver.Chrome) -> None:
    set_width(shown, 1280)

    def numbers() -> list[str]:
        rows = shown.find_elements(By.CSS_SELECTOR, "#all-trials tbody tr")
        return [row.find_element(By.TAG_NAME, "td").text for row in rows if row.is_displayed()]

    head = shown.find_element(By.CSS_SELECTOR, "#all-trials th")
    head.click()
    assert numbers() == ["0", "1", "2", "3"]
    head.click()
    assert numbers() == ["3", "2", "1", "0"]
    shown.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("fold static ok")
    assert numbers() == ["2"]


def test_changes_are_sorted_from_faster_to_slower(
    chromium: webdriver.Chrome, result: RunResult, trials: list[Trial], tmp_path: Path
) -> None:
    ratios = (1.5, 0.7, 0.95, 1.0, 0.1)
    rows = []
    for number, ratio in enumerate(ratios):
        changed = {"latency_p50": Estimate.exact(ratio)}
        rows.append(replace(trials[2], number=number, chain="graph", ratios=changed))
    page = tmp_path / "report.html"
    page.write_text(html_report(result, rows), encoding="utf-8")
    chromium.get(page.as_uri())
    chromium.find_element(By.CSS_SELECTOR, "#all-trials th:nth-child(3)").click()
    cells = chromium.find_elements(By.CSS_SELECTOR, "#all-trials td:nth-child(3)")
    assert [cell.text for cell in cells] == ["10x faster", "1.4x faster", "1.05x faster", "same speed", "1.5x slower"]


def test_models_of_a_zoo_are_filtered(chromium: webdriver.Chrome, tmp_path: Path) -> None:
    page = tmp_path / "zoo.html"
    page.write_text(nights_html(history_of("production", nights_of({"cnn": [0.5, 0.7], "rnn": [0.5, 0.5]}))))
    chromium.get(page.as_uri())

    def models() -> list[str]:
        rows = chromium.find_elements(By.CSS_SELECTOR, "tr[data-model]")
        return [row.get_attribute("data-model") or "" for row in rows if row.is_displayed()]

    assert models() == ["cnn", "rnn"]
    field = chromium.find_element(By.ID, "only-model")
    field.send_keys("rn")
    assert models() == ["rnn"]
    assert not chromium.find_element(By.ID, "model-cnn").is_displayed()
