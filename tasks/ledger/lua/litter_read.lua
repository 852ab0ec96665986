-- Entries that the sweep may look at now, the oldest first.   own: limit   reply: entries
return call('ZRANGEBYSCORE', R .. ':litter', '-inf', int(NOW), 'LIMIT', 0, arg(1))
