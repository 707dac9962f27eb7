// Draws tokens over coloured backgrounds. Texts enter as text, never as markup. A click or an arrow key chooses one.
export default function ({ parentElement, data, setTriggerValue }) {
  const map = parentElement.querySelector(".tokens");
  const spans = data.tokens.map(([text, colour, hint], place) => {
    const span = document.createElement("span");
    span.textContent = text;
    span.title = hint;
    span.dataset.place = place;
    span.style.backgroundColor = colour;
    if (place === data.chosen) span.className = "chosen";
    return span;
  });
  map.setAttribute("aria-label", data.label);
  map.replaceChildren(...spans);
  map.onclick = (event) => {
    const span = event.target.closest("[data-place]");
    if (span !== null) setTriggerValue("token", Number(span.dataset.place));
  };
  map.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = data.chosen + step;
    if (step === undefined || next < 0 || next >= spans.length) return;
    event.preventDefault();
    setTriggerValue("token", next);
  };
}
