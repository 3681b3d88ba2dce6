// The pages of the site: their files in the repository, and what a link from one of them leads to.
import { existsSync, readdirSync } from 'node:fs'
import path from 'node:path'

// make site copies this folder to bin/site.
export const repository = path.resolve(import.meta.dirname, '../..')

const source = 'https://github.com/tollgate-dev/tollgate'

// The pages beside those in docs.
const others = [
  'README.md', 'ARCHITECTURE.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md',
  'deploy/README.md', 'deploy/chart/tollgate/README.md', 'deploy/monitoring/README.md',
]

// pages are the files of all pages, by their paths in the repository.
export const pages = [
  ...others,
  ...readdirSync(path.join(repository, 'docs')).filter(name => name.endsWith('.md')).map(name => `docs/${name}`),
].sort()

// staged is the folder with the copies of pages and diagrams from which the site is built.
export const staged = path.join(import.meta.dirname, 'src')

// published is the path of a page on the site, as a file: a README is the index of its folder.
export const published = page => page.replace(/README\.md$/, 'index.md')

// route is the path of a page on the site, as a link.
export const route = page => '/' + published(page).replace(/(index)?\.md$/, '')

// target is what a link on a page leads to: another page of the site, a place on a page, or a file in the repository.
export function target(page, href) {
  if (/^[a-z]+:/.test(href) || href.startsWith('#')) return href
  const [relative, fragment] = href.split('#')
  const file = path.posix.join(path.posix.dirname(page), relative).replace(/\/$/, '')
  if (pages.includes(file)) return route(file) + (fragment ? `#${fragment}` : '')
  if (!existsSync(path.join(repository, file))) throw new Error(`${page}: the link ${href} leads to ${file}, which is not there`)
  return `${source}/blob/main/${file}` + (fragment ? `#${fragment}` : '')
}
