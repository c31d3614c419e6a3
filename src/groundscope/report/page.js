"use strict";
// Selecting a span lights the passages the model looked at while it read the span, and the passage sentence to
// compare it with; selecting a sentence lights the latter. Hover and focus show it for the moment; a click, Enter
// or Space keeps it; Escape lets go. Without this script the lists say the same.
for (const verdict of document.querySelectorAll(".verdict")) {
  const marks = [...verdict.querySelectorAll(".answer [data-span]")];
  const entries = [...verdict.querySelectorAll(".spans [data-span]")];
  const sentences = [...verdict.querySelectorAll(".sentences [data-sentence]")];
  const words = [...verdict.querySelectorAll(".answer [data-sentence]")];
  const passages = [...verdict.querySelectorAll(".passage")];
  const nears = [...verdict.querySelectorAll(".passage [data-near]")];
  const spanKey = (item) => `span ${item.dataset.span}`;
  const sentenceKey = (item) => `sentence ${item.dataset.sentence}`;
  let kept = null;

  const entryOf = (key) =>
    entries.find((item) => spanKey(item) === key) ?? sentences.find((item) => sentenceKey(item) === key);
  const isNear = (piece, near) => near !== undefined && piece.dataset.near.split(" ").includes(near);

  const show = (key) => {
    for (const item of [...marks, ...entries]) item.classList.toggle("on", spanKey(item) === key);
    for (const item of [...sentences, ...words]) item.classList.toggle("on", sentenceKey(item) === key);
    const entry = entryOf(key);
    for (const piece of nears) piece.classList.toggle("on", isNear(piece, entry?.dataset.near));
    const weights = new Map(
      [...(entry ? entry.querySelectorAll("[data-passage]") : [])].map((item) => [
        item.dataset.passage,
        Number(item.dataset.weight),
      ]),
    );
    for (const passage of passages) {
      const weight = weights.get(passage.dataset.passage);
      passage.classList.toggle("lit", weight !== undefined);
      passage.querySelector(".share").textContent =
        weight === undefined ? "" : `${Math.round(100 * weight)} % of the attention`;
      if (weight === undefined) delete passage.dataset.strength;
      else passage.dataset.strength = Math.max(1, Math.min(4, Math.ceil(4 * weight)));
    }
  };
  const keep = (key) => {
    kept = key;
    for (const item of marks) item.setAttribute("aria-pressed", String(spanKey(item) === key));
    show(key);
    // Inside its own passage only: the page stays where the reader is.
    const piece = nears.find((item) => isNear(item, entryOf(key)?.dataset.near));
    const box = piece?.closest(".passage");
    if (box) box.scrollTop += piece.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
  };
  const toggle = (key) => keep(key === kept ? null : key);

  const listen = (item, key) => {
    item.addEventListener("mouseenter", () => show(key));
    item.addEventListener("mouseleave", () => show(kept));
    item.addEventListener("click", (event) => {
      event.stopPropagation();
      // A link leads to the passage, and what it belongs to stays selected.
      if (event.target.closest("a")) keep(key);
      else toggle(key);
    });
    item.addEventListener("focusin", () => show(key));
    item.addEventListener("focusout", () => show(kept));
  };
  for (const item of [...marks, ...entries]) listen(item, spanKey(item));
  for (const item of sentences) listen(item, sentenceKey(item));
  // A span is selected before the sentence around it.
  for (const item of words) if (!item.closest("[data-span]")) listen(item, sentenceKey(item));
  for (const item of marks) {
    item.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(spanKey(item));
    });
  }
  verdict.addEventListener("keydown", (event) => {
    if (event.key === "Escape") keep(null);
  });
}
