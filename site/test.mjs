// Looks at the site that make site has built.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import test from 'node:test'
import { pathToFileURL } from 'node:url'
import MiniSearch from 'minisearch'
import { parse } from 'node-html-parser'
import { pages, published, route, target } from './pages.mjs'
import { sidebar } from './.vitepress/sidebar.mjs'

const dist = path.join(import.meta.dirname, 'dist')
const files = readdirSync(dist, { recursive: true }).map(name => name.split(path.sep).join('/'))
const html = new Map(files.filter(name => name.endsWith('.html')).map(name => [name, parse(readFileSync(path.join(dist, name), 'utf8'))]))
const of = page => published(page).replace(/md$/, 'html')

// found is the file that a path on the site leads to.
const found = at => [at, `${at}.html`, `${at}index.html`].map(name => name.replace(/^\//, '')).find(name => files.includes(name))

test('each page is built', () => {
  for (const page of pages) assert.ok(html.has(of(page)), page)
})

test('each page is in the sidebar, once', () => {
  assert.deepEqual(sidebar.flatMap(group => group.items.map(item => item.link)).sort(), pages.map(route).sort())
})

test('each link within the site leads to a page, and to a place on it', () => {
  let followed = 0
  for (const [name, document] of html) {
    for (const link of document.querySelectorAll('a[href]')) {
      const href = link.getAttribute('href')
      if (/^[a-z]+:/.test(href)) continue
      const url = new URL(href, `file:///${name}`)
      const file = found(decodeURI(url.pathname))
      assert.ok(file, `${name}: ${href} leads nowhere`)
      const fragment = decodeURIComponent(url.hash.slice(1))
      if (fragment && html.has(file)) assert.ok(html.get(file).getElementById(fragment), `${name}: ${href} leads to no place of ${file}`)
      followed++
    }
  }
  assert.ok(followed > 1000, `${followed} links`)
})

test('pages load nothing from another host', () => {
  for (const [name, document] of html) {
    const policy = document.querySelector('meta[http-equiv=Content-Security-Policy]')
    assert.match(policy?.getAttribute('content') ?? '', /^default-src 'self';/, name)
    for (const element of document.querySelectorAll('[src], link[href]')) {
      const at = element.getAttribute('src') ?? element.getAttribute('href')
      assert.doesNotMatch(at, /^(https?:)?\/\//, name)
      if (!at.startsWith('data:')) assert.ok(found(at), `${name}: ${at} is not there`)
    }
  }
  for (const name of files.filter(name => name.endsWith('.css'))) {
    assert.doesNotMatch(readFileSync(path.join(dist, name), 'utf8'), /(url\(|@import )["']?(https?:)?\/\//, name)
  }
})

test('the search finds pages', async () => {
  const index = files.find(name => /localSearchIndexroot.*\.js$/.test(name))
  assert.ok(index, 'the search index')
  const { default: json } = await import(pathToFileURL(path.join(dist, index)))
  const search = MiniSearch.loadJSON(json, { fields: ['title', 'titles', 'text'], storeFields: ['title', 'titles'] })
  for (const [words, page] of [
    ['PodDisruptionBudget deleteAfter', 'docs/eviction.md'], ['TolerationNotGranted', 'docs/refusals.md'], ['Autopilot', 'docs/managed-clusters.md'],
  ]) {
    const ids = search.search(words, { combineWith: 'AND' }).map(result => result.id.split('#')[0])
    assert.ok(ids.includes('/' + of(page)), `${words}: ${ids}`)
  }
})

test('links of pages lead to pages, to files of the repository, or fail', () => {
  assert.equal(target('docs/faq.md', 'eviction.md#modes'), '/docs/eviction#modes')
  assert.equal(target('docs/faq.md', '../README.md'), '/')
  assert.equal(target('README.md', 'docs/README.md'), '/docs/')
  assert.equal(target('README.md', 'deploy/samples'), 'https://github.com/tollgate-dev/tollgate/blob/main/deploy/samples')
  assert.equal(target('README.md', '#install-it'), '#install-it')
  assert.throws(() => target('docs/faq.md', 'missing.md'), /docs\/faq\.md: the link missing\.md leads to docs\/missing\.md/)
})
