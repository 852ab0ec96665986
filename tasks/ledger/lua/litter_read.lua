-- Entries that the sweep may look at now, the oldest first.   own: limit   reply: entries
return call('ZRANGEBYSCORE', R .. ':litter', '-inf', NOW, 'LIMIT', 0, ARGV[OWN])
