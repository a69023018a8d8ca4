package report

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// fonts are the fonts of text in browsers; the plotting library measures text with its own font.
const fonts = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"

var (
	prologue = regexp.MustCompile(`(?s)^.*?<svg`)
	size     = regexp.MustCompile(`(?s)^<svg width="[^"]*" height="[^"]*" viewBox="([^"]*)"[^>]*>`)
	family   = regexp.MustCompile(`font-family:[^;"]*`)
	path     = regexp.MustCompile(` d="[^"]*"`)
	digits   = regexp.MustCompile(`(\.\d\d)\d+`)
)

// render draws a plot as an SVG element that takes the width it is given and has label as its
// description.
func render(p *plot.Plot, width, height vg.Length, label string) (string, error) {
	c := vgsvg.New(width, height)
	// The last label of the axis stands half outside of it.
	p.Draw(draw.Crop(draw.New(c), 4, -18, 0, 0))
	var buf bytes.Buffer
	if _, err := c.WriteTo(&buf); err != nil {
		return "", err
	}
	s := prologue.ReplaceAllString(buf.String(), "<svg")
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="$1" role="img" aria-label="%s">`,
		strings.ReplaceAll(html.EscapeString(label), "$", "$$"))
	s = size.ReplaceAllString(s, head)
	s = family.ReplaceAllString(s, "font-family:"+fonts)
	return path.ReplaceAllStringFunc(s, func(d string) string { return digits.ReplaceAllString(d, "$1") }), nil
}

// file is an SVG element as a file of its own, on white.
func file(svg string) string {
	i := strings.Index(svg, ">") + 1
	return `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + svg[:i] + `<rect width="100%" height="100%" fill="#fff"/>` + svg[i:]
}
