// Writes by a stream, which other threads carry out, or in one call: write.js OUT stream|whole
const fs = require("fs");
const [path, how] = process.argv.slice(2);
if (how === "whole") {
  fs.writeFileSync(path, Array.from({ length: 1500 }, (_, i) => `${i} written at once\n`).join(""));
} else {
  const out = fs.createWriteStream(path);
  for (let i = 0; i < 1500; i++) out.write(`${i} written by a stream of node\n`);
  out.end();
}
