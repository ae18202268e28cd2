// Reads by a stream, then in one call, then asks for the size: read.js IN OUT
const fs = require("fs");
const [path, target] = process.argv.slice(2);
let bytes = 0;
const parts = [];
const stream = fs.createReadStream(path, { highWaterMark: 5000 });
stream.on("data", (part) => { bytes += part.length; parts.push(part); });
stream.on("error", (error) => { console.error(error); process.exit(1); });
stream.on("end", () => {
  const whole = fs.readFileSync(path);
  const same = Buffer.concat(parts).equals(whole);
  fs.writeFileSync(target, `${bytes} ${whole.length} ${fs.statSync(path).size} ${same}\n` + whole.toString("latin1").slice(0, 3000));
});
