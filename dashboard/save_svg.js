// Saves the chart that stands in the container of class "st-key-<data.container>", as it is drawn now.
export default function ({ parentElement, data }) {
  const button = parentElement.querySelector("button");
  button.onclick = () => {
    const drawn = document.querySelector(`.st-key-${CSS.escape(data.container)} svg.marks`);
    if (drawn === null) {
      button.textContent = "Not drawn yet";
      return;
    }
    const chart = drawn.cloneNode(true);
    chart.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const text = new XMLSerializer().serializeToString(chart);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    link.download = `${data.fileName}.svg`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
}
