-- A batch has ended and nothing is left to do for it.   own: id   reply: 1 it was open
allowed_when_full()
return call('SREM', R .. ':open-batches', arg(1))
