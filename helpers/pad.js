// A square to draw a digit on: white ink on black, as in MNIST, with mouse, pen or finger.
// Talks to widgets.DigitPad through two traits: `side` (pixels along one side of what is sent) and
// `pixels` (side * side bytes, row by row, 0 = background). Loads nothing from anywhere.

const CSS_SIDE = 280; // size on the page; 10 page pixels for each pixel of a 28x28 digit
const PEN = 22; // page pixels: about MNIST's stroke width once the digit is fitted into 20x20
const SEND_EVERY = 120; // ms between two messages while the pen is down

function render({ model, el }) {
  const side = model.get("side");
  const root = document.createElement("div");
  root.className = "mnn-pad";
  root.style.cssText = `display:inline-block;width:${CSS_SIDE}px`;
  // Without this, JupyterLab takes Enter on our button as "edit the cell".
  root.dataset.lmSuppressShortcuts = "true";

  const canvas = document.createElement("canvas");
  const scale = Math.max(1, window.devicePixelRatio || 1);
  canvas.width = canvas.height = Math.round(CSS_SIDE * scale);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Drawing pad: draw one digit from 0 to 9 with mouse, pen or finger");
  canvas.style.cssText =
    `display:block;width:${CSS_SIDE}px;height:${CSS_SIDE}px;background:#000;border-radius:4px;` +
    "outline:1px solid #767676;" + // an edge in the dark theme; takes no room, unlike a border
    "cursor:crosshair;touch-action:none"; // touch-action: a finger draws instead of scrolling the page
  const button = document.createElement("button");
  button.type = "button";
  button.className = "mnn-pad-clear jupyter-button";
  button.textContent = "Clear";
  button.setAttribute("aria-label", "Clear the drawing pad");
  button.style.cssText = "width:100%;margin:6px 0 0 0";
  root.append(canvas, button);
  el.replaceChildren(root);

  const ink = canvas.getContext("2d");
  const small = document.createElement("canvas");
  small.width = small.height = side;
  const smallInk = small.getContext("2d", { willReadFrequently: true });
  let sent = null; // the value that this view itself put into the model
  let timer = null;
  let pen = null; // id of the pointer that draws, and where it was last
  let last = null;

  function wipe() {
    ink.fillStyle = "#000";
    ink.fillRect(0, 0, canvas.width, canvas.height);
  }

  function send() {
    clearTimeout(timer);
    timer = null;
    smallInk.imageSmoothingQuality = "high";
    smallInk.drawImage(canvas, 0, 0, side, side);
    const rgba = smallInk.getImageData(0, 0, side, side).data;
    const grey = new Uint8Array(side * side).map((_, i) => rgba[4 * i]);
    sent = new DataView(grey.buffer);
    model.set("pixels", sent);
    model.save_changes();
  }

  function receive() {
    const value = model.get("pixels");
    if (value === sent) return; // our own drawing: the canvas already shows it
    sent = value;
    wipe();
    if (value?.byteLength !== side * side) return; // empty: a clean pad
    const image = smallInk.createImageData(side, side);
    for (let i = 0; i < side * side; i++) {
      image.data.fill(value.getUint8(i), 4 * i, 4 * i + 3);
      image.data[4 * i + 3] = 255;
    }
    smallInk.putImageData(image, 0, 0);
    ink.drawImage(small, 0, 0, canvas.width, canvas.height);
  }

  function draw(event) {
    const box = canvas.getBoundingClientRect(); // not CSS_SIDE: the page may be zoomed or transformed
    const place = (e) => ({
      x: ((e.clientX - box.left) / box.width) * canvas.width,
      y: ((e.clientY - box.top) / box.height) * canvas.height,
    });
    ink.strokeStyle = "#fff";
    ink.lineWidth = PEN * scale;
    ink.lineCap = ink.lineJoin = "round";
    ink.beginPath();
    ink.moveTo(last ? last.x : place(event).x, last ? last.y : place(event).y);
    // Fast strokes: the browser bundles several positions into one event.
    const events = event.getCoalescedEvents ? event.getCoalescedEvents() : [];
    for (const e of events.length ? events : [event]) {
      last = place(e);
      ink.lineTo(last.x, last.y);
    }
    ink.stroke();
    if (timer === null) timer = setTimeout(send, SEND_EVERY);
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (pen !== null || event.button !== 0) return; // one finger draws; the right button opens the menu
    pen = event.pointerId;
    last = null;
    canvas.setPointerCapture(pen); // the stroke goes on when the pen leaves the pad
    draw(event);
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerId === pen) draw(event);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => {
      if (event.pointerId !== pen) return;
      pen = null;
      send();
    });
  }
  button.addEventListener("click", () => {
    wipe();
    send();
  });

  wipe();
  receive();
  model.on("change:pixels", receive);
  return () => {
    clearTimeout(timer);
    model.off("change:pixels", receive);
  };
}

export default { render };
