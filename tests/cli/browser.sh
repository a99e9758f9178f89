#!/bin/sh
# The pages in a browser: nothing is wider than the screen of a phone or of a desk, and the curves are there. Skipped without Chromium.
. "$(dirname "$0")/lib.sh"
for browser in chromium chromium-browser google-chrome ""; do
    [ -z "$browser" ] || ! command -v "$browser" >/dev/null || break
done
if [ -z "$browser" ]; then
    echo "skipped: there is no Chromium"
    exit 77
fi
tiny
expect 0 "$ZERO3D" train tiny.yaml checkpoint.interval=2
expect 0 "$ZERO3D" report run run --html report.html
expect 0 "$ZERO3D" reproduce all --page paper.html --configs "$SOURCE/configs"

for page in report.html paper.html; do
    for width in 390 1280; do
        cat >frame.html <<END
<!DOCTYPE html><html><body style="margin:0"><iframe id="f" src="$page" style="width:${width}px;height:900px;border:0"></iframe><p id="said"></p><script>
onload = () => {
  const page = document.getElementById("f").contentDocument, wide = [...page.querySelectorAll("body *:not(.wide *)")].filter(
    (e) => e.getBoundingClientRect().right > $width + 1);
  document.getElementById("said").textContent = "scheme " + page.documentElement.scrollWidth + " wide " + wide.length +
    " drawn " + [...page.querySelectorAll("svg path")].filter((e) => e.getBoundingClientRect().width > 100).length + ".";
};
</script></body></html>
END
        # A file may look into another one only if the browser is told so. It runs as root here and there.
        "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" --allow-file-access-from-files --window-size=1400,1000 \
            --dump-dom "file://$work/frame.html" >out 2>err || {
            echo "skipped: $browser does not start here"
            exit 77
        }
        grep -q "scheme $width wide 0 drawn [1-9]" out || fail "$page at $width pixels: $(grep -o 'scheme [^<]*' out)"
    done
done
