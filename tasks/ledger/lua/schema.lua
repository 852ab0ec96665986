-- Claims an empty Redis for this version of the data model.   own: version   reply: the version that is there
allowed_when_full()
call('SET', R .. ':schema', arg(1), 'NX')
return call('GET', R .. ':schema')
