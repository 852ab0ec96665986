-- Where a dataset is.   own: owner name   reply: {version, catalog}, both false when there is none
return call('HMGET', R .. ':dataset:' .. arg(1) .. ':' .. arg(2), 'version', 'catalog')
