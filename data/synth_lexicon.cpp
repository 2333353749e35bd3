// The words of the embedded corpus. A table starts with "@name field field ..."; rows end at a
// semicolon or at the end of the line, fields at "|". The bare name of a bound row prints its first
// field. Common rows come first: draws favour the start of a table.
#include "data/synth_grammar.h"

namespace assay {

const std::string_view kSynthLexicon = R"(
@girl one
Anna; Mia; Lily; Ella; Rosa; Nora; Ivy; Clara; Tess; Maya; Hana; Juno; Pearl; Greta; Alma; Freya; Sofia; Wren; Opal
Dora; Lena; Marta; Zara; Ines; Bella; Carla; Edith; Fiona; Gilda; Hazel; Irma; Jana; Kira; Linnea; Mabel; Nadia
Olga; Paula; Queenie; Ruth
@boy one
Tom; Ben; Max; Leo; Sam; Finn; Omar; Jack; Hugo; Noah; Ravi; Oscar; Felix; Milo; Otto; Theo; Ezra; Jonas; Emil; Karl
Arlo; Bruno; Cyrus; Dylan; Edgar; Floyd; Gus; Hector; Ivan; Jasper; Kofi; Luis; Marco; Nico; Orson; Pedro; Quinn
Rufus; Silas; Viktor
@title one he him his himself
Aunt|she|her|her|herself; Uncle|he|him|his|himself; Grandma|she|her|her|herself; Captain|he|him|his|himself
Doctor|she|her|her|herself; Master|he|him|his|himself; Lady|she|her|her|herself; Sir|he|him|his|himself
@surname one
Bell; Hill; Stone; Reed; Marsh; Finch; Potter; Wood; Frost; Lark; Brook; Thorn; Penny; Nutt; Pike; Moss; Flint; Sparrow
@prefix one
Mar; Thorn; Ash; Bram; Win; Oak; Stan; Dun; Har; Kel; Lin; Mill; Nor; Pen; Quar; Red; Sel; Tar; Ul; Wes
@suffix one
low; by; ford; ton; wick; mere; dale; burg; field; haven; port; stead
@landmark one
clock tower; stone bridge; glass dome; iron gate; windmill; bell house; marble fountain; white chapel; broken arch
copper statue; rope ferry; sunken garden; painted wall; salt mine; round library; hollow oak
@product one
honey; cheese; blue glass; wool; silk; smoked fish; paper; pepper; candles; cider; clay pots; violins; lace; plums
maps; tin toys
@animal one many sound home food skin
dog|dogs|barked|kennel|bones|fur; cat|cats|meowed|basket|fish|fur; cow|cows|mooed|barn|grass|hide
pig|pigs|grunted|sty|turnips|skin; sheep|sheep|bleated|fold|clover|wool; hen|hens|clucked|coop|corn|feathers
duck|ducks|quacked|pond|weeds|feathers; horse|horses|neighed|stable|oats|hair; frog|frogs|croaked|swamp|flies|skin
owl|owls|hooted|hollow tree|mice|feathers; fox|foxes|yipped|den|berries|fur; bear|bears|growled|cave|honey|fur
wolf|wolves|howled|lair|meat|fur; mouse|mice|squeaked|hole|crumbs|fur; rabbit|rabbits|thumped|burrow|carrots|fur
bee|bees|buzzed|hive|nectar|fuzz; snake|snakes|hissed|log|eggs|scales; crow|crows|cawed|tall elm|seeds|feathers
lion|lions|roared|plain|gazelles|fur; seal|seals|yelped|ice shelf|herring|skin; goat|goats|maaed|ledge|thistles|hair
donkey|donkeys|brayed|shed|straw|hair; goose|geese|honked|meadow|barley|feathers; monkey|monkeys|chattered|canopy|figs|fur
squirrel|squirrels|chirred|tree hole|acorns|fur; cricket|crickets|chirped|crack|leaves|shell
pigeon|pigeons|cooed|loft|peas|feathers; beaver|beavers|slapped|lodge|bark|fur; turtle|turtles|clicked|sandbank|jelly|shell
hedgehog|hedgehogs|snuffled|leaf pile|beetles|spines; otter|otters|whistled|river bank|crabs|fur
parrot|parrots|shrieked|cage|nuts|feathers; elephant|elephants|trumpeted|savanna|reeds|hide; tiger|tigers|snarled|jungle|deer|fur
@thing one
kite; drum; lantern; hat; coat; whistle; boat; ball; cup; bell; ring; book; key; basket; wagon; mask; scarf; flute; doll
button; mirror; compass; spoon; umbrella; ribbon; candle; blanket; puppet; wheel; ladder; jar; bucket; broom; comb; purse
crown; marble; feather pen; teapot; saddle
@color one
red; blue; green; yellow; white; black; brown; purple; orange; pink; gray; golden; silver; violet; scarlet
@stuff one
wood; tin; clay; wool; paper; glass; leather; silk; straw; copper; stone; ivory
@food one
bread; milk; apples; cheese; honey; eggs; rice; soup; cake; plums; beans; butter; salt; pears; onions; jam; tea; nuts
corn; mushrooms; lemons; noodles; ginger; pumpkins; olives; cherries; garlic; oatmeal; cabbage; vanilla
@dish one
pie; cake; stew; pudding; pancake; salad; dumpling; porridge; sauce; waffle
@trait one manner habit lesson
kind|gently|always helped others first|a kind word costs nothing
brave|boldly|never ran from trouble|courage grows when you use it
shy|quietly|liked to stay behind the door|even a quiet voice can be heard
clever|quickly|had an answer for everything|thinking first saves many steps
lazy|slowly|slept until noon|work that waits only grows
greedy|hungrily|kept every crumb alone|sharing makes a small thing large
curious|eagerly|asked a hundred questions a day|questions open doors
stubborn|firmly|never changed a plan|it is no shame to change your mind
careful|carefully|counted everything twice|slow steps arrive too
proud|loudly|loved to be praised|nobody is too big to say sorry
cheerful|merrily|sang even in the rain|a smile is easy to carry
clumsy|awkwardly|tripped over every root|falling is part of learning
patient|calmly|could wait all day without a word|good things take time
grumpy|crossly|complained about the weather|anger makes the road longer
honest|plainly|could not tell a lie|the truth is lighter than a lie
forgetful|dreamily|lost something every day|a knot in a string helps the memory
@mood one
happy; sad; tired; proud; worried; angry; hungry; excited; lonely; afraid; surprised; calm; sleepy; glad; nervous; cold
@weather one
sunny; rainy; windy; foggy; snowy; stormy; cloudy; warm; frosty; misty; hot; gloomy
@time one
morning; evening; afternoon; night; dawn; noon; midnight; dusk
@season one sign
spring|buds on the branches; summer|dust on the roads; autumn|red leaves on the ground; winter|ice on the windows
@day one next
Monday|Tuesday; Tuesday|Wednesday; Wednesday|Thursday; Thursday|Friday; Friday|Saturday; Saturday|Sunday; Sunday|Monday
@job one tool place makes
baker|oven|bakery|loaves; farmer|plow|farm|wheat; tailor|needle|shop|coats; sailor|compass|ship|knots
smith|hammer|forge|nails; teacher|chalk|school|lessons; painter|brush|studio|pictures; miller|grindstone|mill|flour
fisher|hook|jetty|dried cod; carpenter|saw|workshop|chairs; gardener|rake|greenhouse|tulips; cook|ladle|kitchen|stew
weaver|loom|attic|carpets; potter|kiln|cellar|bowls; miner|pick|tunnel|coal; shepherd|staff|pasture|fleece
@count one
two; three; four; five; six; seven; eight; nine; ten; eleven; twelve
@few one
one; two; three; four
@adj one
little; old; big; strange; soft; bright; heavy; tiny; round; shiny; broken; warm; dusty; lovely; crooked; smooth; hidden
narrow; deep; tall
@went one
walked; ran; hurried; wandered; skipped; marched; strolled; rushed; crept; rode; limped; trotted
@saw one
saw; found; noticed; spotted; discovered; met; passed; followed
@said one
said; whispered; shouted; answered; cried; replied; murmured; laughed; sighed; promised
@body one
hand; head; nose; foot; shoulder; knee; ear; elbow; thumb; chin
@room one
kitchen; cellar; attic; hall; pantry; porch; bedroom; closet; stairway; parlor
@spot one
under the bed; behind the stove; inside a boot; on the roof; below the stairs; in the hay; beside the well
between two stones; near the gate; on top of the shelf; in an empty barrel; among the roses; under a loose board
at the bottom of the pond; in a bird nest; behind the curtain
@petname one
Patch; Biscuit; Shadow; Pepper; Button; Clover; Rusty; Snowy; Thunder; Pickle; Tinker; Velvet; Nugget; Ziggy; Pumpkin; Comet
@word one
moon; star; river; wind; stone; bird; dream; road; fire; snow; leaf; song; heart; door; night; rain; shadow; cloud; song
morning; ocean; thunder; silence; feather
@verb one
sleep; shine; dance; fall; wait; sing; turn; grow; run; burn; fly; weep; rise; drift; call; hide
@topic one
sea; farm; forest; kitchen; school; mountain; market; garden; castle; river; workshop; fair
@sea.place one
beach; harbor; pier; lighthouse; cove; dock
@sea.item one
shell; anchor; net; sail; oar; pearl; pebble; starfish; buoy; crab trap
@sea.did one
watched the waves; climbed over the wet rocks; tasted the salty wind; dug in the sand; waved at a passing ship
untangled a fishing line; listened to the gulls; collected pebbles
@farm.place one
barn; stable; haystack; cowshed; orchard; pigpen
@farm.item one
pitchfork; milk pail; fence post; horseshoe; grain sack; rooster; wheelbarrow; scarecrow; harness; tractor
@farm.did one
fed the chickens; swept the yard; milked the brown cow; stacked the hay; mended the fence; pulled weeds from the field
chased a rooster; filled the trough
@forest.place one
clearing; thicket; pine grove; ravine; brook; mossy hill
@forest.item one
mushroom; pine cone; fern; spider web; twig; hollow trunk; antler; birch; nest; toadstool
@forest.did one
stepped over fallen branches; smelled the pine needles; followed a trail of paw prints; gathered dry twigs
hid behind a wide tree; picked wild berries; listened to a woodpecker; marked the path with chalk
@kitchen.place one
pantry; stove; long table; sink; cupboard; fireplace
@kitchen.item one
kettle; rolling pin; frying pan; fork; apron; recipe; sieve; sugar bowl; cutting board; pot lid
@kitchen.did one
stirred the soup; rolled the dough; washed the plates; chopped the carrots; licked the spoon; spilled the flour
boiled the water; peeled potatoes
@school.place one
classroom; playground; library; blackboard; gym; cloakroom
@school.item one
pencil; eraser; notebook; ruler; globe; desk; satchel; dictionary; crayon; inkwell
@school.did one
learned a poem by heart; wrote a long sentence; added the numbers; drew a map; whispered to a neighbor
sharpened a pencil; raised a hand; read the last page
@mountain.place one
summit; cliff; glacier; hut; steep path; valley
@mountain.item one
boulder; walking stick; sled; eagle; icicle; backpack; ice axe; cairn; lantern hook; rope bridge
@mountain.did one
looked down at the tiny houses; rested on a flat rock; shouted to hear the echo; tied a rope around the waist
drank from a cold spring; slid on the ice; counted the peaks; lit a small fire
@market.place one
stall; square; fountain; bank; tavern; fish hall
@market.item one
coin; scale; cart; spice; carpet; crate; merchant; price tag; parcel; bargain
@market.did one
haggled over a price; carried heavy crates; tried a slice of melon; paid with a silver coin; waited in a long line
smelled the spices; counted the change; called out to the crowd
@garden.place one
hedge; greenhouse; rose bed; lawn; bench; compost heap
@garden.item one
watering can; sunflower; worm; shovel; tulip; trellis; snail; butterfly; flowerpot; sprout
@garden.did one
watered the seedlings; trimmed the hedge; chased a butterfly; planted a row of bulbs; dug up a worm; raked the leaves
smelled the lilac; picked ripe tomatoes
@castle.place one
throne room; tower; moat; dungeon; drawbridge; great hall
@castle.item one
sword; shield; banner; throne; goblet; torch; helmet; tapestry; scepter; trumpet
@castle.did one
bowed to the queen; polished the armor; climbed the spiral stairs; guarded the gate; feasted with the knights
read an old scroll; blew the trumpet; listened to the jester
@river.place one
ford; waterfall; raft; reed bank; watermill; island
@river.item one
paddle; trout; canoe; lily pad; dragonfly; bridge pillar; fishing rod; rowboat; ferry bell; willow
@river.did one
threw flat stones; paddled against the current; caught a small trout; washed a muddy shirt; crossed on slippery rocks
built a dam of mud; floated on a log; watched the dragonflies
@workshop.place one
bench; forge; shelf; lathe; storeroom; paint corner
@workshop.item one
nail; screw; plank; chisel; glue pot; spring; gear; file; vise; blueprint
@workshop.did one
sanded a rough board; hammered a bent nail; mixed a bucket of paint; measured the plank twice; oiled the hinges
sorted the screws; swept the sawdust; fixed a wobbly leg
@fair.place one
carousel; tent; stage; ticket booth; maze; puppet theater
@fair.item one
balloon; juggler; prize; fiddle; acrobat; candy apple; fortune teller; clown; ticket; swing
@fair.did one
cheered for the juggler; won a prize; rode the carousel; danced to the fiddle; ate a candy apple; threw rings at a bottle
laughed at the clown; got lost in the maze
)";

}  // namespace assay
