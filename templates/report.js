"use strict";
(function () {
  const form = document.getElementById("filter");
  const cases = Array.from(document.querySelectorAll("details.case"));
  const asked = new URLSearchParams(location.search);
  for (const name of ["text", "verdict", "target"]) form.elements[name].value = asked.get(name) || "";
  function matches(found) {
    const text = form.elements.text.value.toLowerCase(), target = form.elements.target.value;
    const verdict = form.elements.verdict.value;
    return (!verdict || found.dataset.verdict === verdict) &&
      (!target || found.dataset.targets.split(" ").includes(target)) &&
      (!text || found.querySelector("summary").textContent.toLowerCase().includes(text));
  }
  function apply() {
    let shown = 0;
    for (const found of cases) {
      const keep = matches(found);
      found.hidden = !keep;
      shown += keep;
    }
    for (const section of document.querySelectorAll("section.cases"))
      section.hidden = !section.querySelector("details.case:not([hidden])");
    form.elements.shown.textContent = shown === cases.length ? "" : shown + " of " + cases.length + " shown";
  }
  function remember() {
    apply();
    const query = new URLSearchParams();
    for (const name of ["text", "verdict", "target"])
      if (form.elements[name].value) query.set(name, form.elements[name].value);
    try { history.replaceState(null, "", "?" + query + location.hash); } catch (error) { /* not for files in some browsers */ }
  }
  function reveal() {
    const aim = location.hash && document.getElementById(location.hash.slice(1));
    if (aim && aim.tagName === "DETAILS") aim.open = true;
  }
  form.addEventListener("input", remember);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  addEventListener("hashchange", reveal);
  form.hidden = cases.length < 2;
  apply();
  reveal();
})();
