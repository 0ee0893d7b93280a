// GLB files -> what Khronos' validator says of each, as one JSON list: node gltf_validate.mjs FILE...
import { readFile } from "node:fs/promises";
import validator from "gltf-validator";

const reports = [];
for (const path of process.argv.slice(2)) {
  reports.push(await validator.validateBytes(new Uint8Array(await readFile(path)), { maxIssues: 0 }));
}
console.log(JSON.stringify(reports));
