// OpenSandbox's JavaScript SDK behind lines of JSON, as sdk_agent.py has the Python one.
// Runs in the folder that has the SDK below node_modules.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { ConnectionConfig, Sandbox } = await import(pathToFileURL(process.argv[2]).href);
const known = new Map();

function config(q) {
  return new ConnectionConfig({ domain: q.domain, apiKey: q.key, requestTimeoutSeconds: 60 });
}

async function keep(promise) {
  const sandbox = await promise;
  known.set(sandbox.id, sandbox);
  return sandbox.id;
}

const free = {
  create: (q) =>
    keep(
      Sandbox.create({
        connectionConfig: config(q),
        image: q.image,
        timeoutSeconds: q.timeout ?? 600,
        env: q.env ?? {},
        networkPolicy: q.policy ?? undefined,
        credentialProxy: q.proxy ? { enabled: true } : undefined,
        resource: q.resource,
      }),
    ),
  connect: (q) => keep(Sandbox.connect({ connectionConfig: config(q), sandboxId: q.id })),
  resume: (q) => keep(Sandbox.resume({ connectionConfig: config(q), sandboxId: q.id })),
};

const on = {
  info: (s) => s.getInfo(),
  policy_get: (s) => s.getEgressPolicy(),
  policy_patch: (s, q) => s.patchEgressRules(q.rules),
  policy_delete: (s, q) => s.deleteEgressRules(q.targets),
  pause: (s) => s.pause(),
  renew: (s, q) => s.renew(q.seconds),
  kill: (s) => s.kill(),
  vault_create: (s, q) =>
    s.credentialVault.create({ credentials: q.credentials, bindings: q.bindings }),
  vault_get: (s) => s.credentialVault.get(),
  vault_patch: (s, q) =>
    s.credentialVault.patch({
      expectedRevision: q.expected,
      credentials: q.credentials,
      bindings: q.bindings,
    }),
  vault_delete: (s) => s.credentialVault.delete(),
  credentials: (s) => s.credentialVault.listCredentials(),
  credential: (s, q) => s.credentialVault.getCredential(q.name),
  bindings: (s) => s.credentialVault.listBindings(),
  binding: (s, q) => s.credentialVault.getBinding(q.name),
};

for await (const line of createInterface({ input: process.stdin })) {
  const q = JSON.parse(line);
  const begin = performance.now();
  let out;
  try {
    const value = free[q.op] ? await free[q.op](q) : await on[q.op](known.get(q.id), q);
    out = { ok: value ?? null };
  } catch (e) {
    out = {
      error: {
        type: e.name,
        text: String(e.message),
        status: e.statusCode ?? null,
        code: e.error?.code ?? null,
        message: e.error?.message ?? null,
      },
    };
  }
  out.seconds = (performance.now() - begin) / 1000;
  console.log(JSON.stringify(out));
}
process.exit(0);
