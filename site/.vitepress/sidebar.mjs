import { route } from '../pages.mjs'

const group = (text, items) => ({ text, items: Object.entries(items).map(([text, page]) => ({ text, link: route(page) })) })

// sidebar has each page once.
export const sidebar = [
  group('Start', {
    'What Tollgate is': 'README.md',
    'All pages, by task': 'docs/README.md',
    'Quickstart': 'docs/quickstart.md',
    'Questions': 'docs/faq.md',
    'Comparison': 'docs/comparison.md',
    'A first policy': 'docs/first-policy.md',
    'A first quarantine': 'docs/first-quarantine.md',
  }),
  group('Install', {
    'Install': 'deploy/README.md',
    'The chart': 'deploy/chart/tollgate/README.md',
    'Managed clusters': 'docs/managed-clusters.md',
    'Argo CD': 'docs/argo-cd.md',
    'Flux': 'docs/flux.md',
    'Registration of the webhooks': 'docs/registration.md',
    'Certificates': 'docs/certificates.md',
    'Callers': 'docs/callers.md',
    'Configuration': 'docs/configuration.md',
    'The image': 'docs/image.md',
  }),
  group('Use', {
    'Policies': 'docs/policies.md',
    'Expressions': 'docs/expressions.md',
    'Eviction': 'docs/eviction.md',
    'Devices': 'docs/devices.md',
    'Patches': 'docs/patches.md',
    'The scheduler': 'docs/scheduler.md',
    'Commands': 'docs/cli.md',
  }),
  group('Operate', {
    'Going to production': 'docs/production.md',
    'Monitoring': 'deploy/monitoring/README.md',
    'Alerts': 'docs/alerts.md',
    'Metrics': 'docs/metrics.md',
    'Traces': 'docs/tracing.md',
    'Autoscalers and health monitors': 'docs/neighbours.md',
    'Troubleshooting': 'docs/troubleshooting.md',
    'Refusals': 'docs/refusals.md',
    'Why is my pod pending or gone': 'docs/pending.md',
    'Upgrade': 'docs/upgrade.md',
    'Uninstall': 'docs/uninstall.md',
  }),
  group('Reference', {
    'API': 'docs/api.md',
    'Compatibility': 'docs/compatibility.md',
    'Stability': 'docs/stability.md',
    'Security': 'docs/security.md',
    'Parity': 'docs/parity.md',
    'Reliability': 'docs/reliability.md',
    'Benchmarks': 'docs/benchmarks.md',
    'Rules and their IDs': 'docs/rules.md',
  }),
  group('Project', {
    'What platform teams ask for': 'docs/adoption.md',
    'Changelog': 'CHANGELOG.md',
    'Releases': 'docs/release.md',
    'Contributing': 'CONTRIBUTING.md',
    'Architecture': 'ARCHITECTURE.md',
    'Reporting a vulnerability': 'SECURITY.md',
  }),
]
