// What the driver `pg` makes of the server's answers, as one JSON object on standard output.
// Usage: node pg.mjs HOST PORT USER DATABASE NODE_MODULES LONG_STATEMENT
import { createRequire } from 'node:module'

const [host, port, user, database, modules, long] = process.argv.slice(2)
const pg = createRequire(`${modules}/`)('pg')
const settings = { host, port: Number(port), user, database, ssl: false }
const found = {}

const client = new pg.Client(settings)
await client.connect()
const one = async (text, values) => Object.values((await client.query(text, values)).rows[0])[0]

found.simple = (await client.query('select id, name, score from people order by id')).rows
found.fields = (await client.query('select id, name, score, born from people')).fields.map(f => [f.name, f.dataTypeID])
found.array = (await client.query({ text: 'select 1::integer as a, 1::integer as a', rowMode: 'array' })).rows
found.parameters = [
  await one('select name from people where id = $1', [1]),
  await one('select $1::text as v', ['naïve ☃']),
  await one('select $1::bigint as v', ['9007199254740993']),
  await one('select $1::double precision as v', [1.5]),
  await one('select $1::boolean as v', [true]),
  await one('select $1::bytea as v', [Buffer.from([0, 255])]).then(b => b.toString('hex')),
  await one('select $1::timestamp with time zone as v', [new Date('2026-01-31T10:00:00.250Z')]).then(d => d.toISOString()),
  await one('select $1::text as v', [null]),
  await one('select count(*)::integer as v from people where id = any($1)', [[1, 2, 9]]),
]
found.named = []
for (let n = 1; n <= 10; n++) {
  const query = { name: 'by-id', text: 'select name from numbers where id = $1', values: [n] }
  found.named.push((await client.query(query)).rows[0].name)
}
found.several = (await client.query('select 1::integer as a; select 2::integer as a')).map(r => r.rows[0].a)
try {
  await client.query('select nope from people')
} catch (e) {
  found.error = { code: e.code, position: e.position, severity: e.severity }
}
found.after = await one('select 1::integer as v')

await client.query('set statement_timeout = 200')
found.timeout = await client.query(long).catch(e => e.code)
await client.end()

// As GrowthBook does: a connection for each statement, all at once.
found.each = await Promise.all(Array.from({ length: 20 }, async (_, n) => {
  const alone = new pg.Client(settings)
  await alone.connect()
  const rows = (await alone.query(`select count(*) as n from numbers where digit = ${n % 10}`)).rows
  await alone.end()
  return rows[0].n
}))

const pool = new pg.Pool({ ...settings, max: 5 })
const asked = Array.from({ length: 50 }, (_, n) => pool.query('select name from numbers where id = $1', [n + 1]))
found.pooled = (await Promise.all(asked)).map(r => r.rows[0].name)
await pool.end()
console.log(JSON.stringify(found))
