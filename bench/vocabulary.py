"""Words for generated texts: plain ones of one token, and longer ones that a WordPiece tokenizer cuts into several."""

PLAIN = """
the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one
you were all her she there would their we him been has when who will no more if out so up said what its about than into
them can only other time new some could these two may first then do any like my now over such our man me even most made
after also did many off before must well back through years much where your way down should because long each just
state people those too mister little good world make very year still see own work men day get here old life both between
being under three never know same last another while us might great go come since against right came take house use
during without again place around however home small found part once general high upon school every water river stone
market garden winter summer village engine paper letter music bridge forest island harbor window kitchen doctor teacher
""".split()  # noqa: SIM905 - a list of quoted words is three times as long and harder to read

LONG = """
accordionist aerodynamically afforestation allotments amphitheatres anemometer apothecaries aqueducts artichokes
asymptotically backgammon balustrades barometers beekeepers biodegradable blacksmiths bookbinding brickyards
bureaucratically cabinetmaker calligraphers candlemaking carpentering cartographers catamarans centrifuges
chandeliers chrysanthemums cobblestones colonnades confectioners coppersmith corrugated counterweights
crosswinds crystallizes daffodils decaffeinated dehumidifier dendrologists desalination dragonflies drawbridges
earthenware electroplating embroiderers estuaries evaporates fermenters ferrymen fertilizers fishmongers
flagstones floodgates footbridges gastronomers glassblowing glaciologist gooseberries greenhouses grindstones
gyroscopes haberdasher handlooms harpsichords haymaking headwaters hedgerows herbariums horticulturist hydrofoils
icebreakers impermeable insulators ironmongery irrigated jewellers juggernauts kaleidoscopes kilowatts knotting
lacquered lamplighter landlocked lapidaries lighthouses limestones locksmiths longitudinally magnetometer
marmalades meandering metronomes microclimates millwrights mosaics mountaineers mulberries nasturtiums navigators
nightingales northwesterly observatories oceanographer orchardists overgrazing oystermen paddleboats papermaking
parabolas pendulums percolates periscopes photosynthesize pomegranates porcelains potters promontories pulleys
quarrymen quicksilver rainwater raspberries reforested rhododendrons riverbeds ropemaking saddlery salinity
sandbanks sawmills schoolmasters seismographs semaphores shipwrights signposts silkworms snowdrifts spectrographs
stalactites steamboats stonemasons sundials surveyors tambourines tapestries telegraphers terracing thermostats
tidewater toolmakers trellises tributaries turbines unmapped upholstery vaporizes viaducts vineyards watermills
watchmakers weathervanes wheelwrights whetstones windbreaks woodcarvers workbenches xylophones yachtsmen zoologists
""".split()  # noqa: SIM905 - as above
