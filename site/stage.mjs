// Copies pages and diagrams to where the site is built from.
import { cpSync, mkdirSync, rmSync } from 'node:fs'
import path from 'node:path'
import { pages, repository, staged } from './pages.mjs'

rmSync(staged, { recursive: true, force: true })
for (const file of [...pages, 'docs/diagrams', 'docs/images']) {
  mkdirSync(path.dirname(path.join(staged, file)), { recursive: true })
  cpSync(path.join(repository, file), path.join(staged, file), { recursive: true })
}
