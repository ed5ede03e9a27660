// The client of Encke: built from client/src by client/build.mjs. MIT or Apache-2.0.
function wordOf(envelope){if(isRecord(envelope))switch(envelope.op){case"gap":return gapOf(envelope);case"ok":case"error":
return answerOf(envelope);case void 0:case"message":return messageOf(envelope);default:return}}function wordOfEvent(event){
if(event.data===void 0)return event.id===void 0?void 0:{kind:"position",id:event.id};let value=parsed(event.data);return event.
event==="encke.gap"?isRecord(value)?gapOf(value):void 0:wordOf(value)}function messageOf(envelope){let id=text(envelope.
id),channel=text(envelope.channel),data=payloadOf(envelope);if(id===void 0||channel===void 0||data===void 0)return;let message={
id,channel,data},event=text(envelope.event),type=text(envelope.type),time=timeOf(envelope.time);return event!==void 0&&(message.
event=event),type!==void 0&&(message.type=type),time!==void 0&&(message.time=time),{kind:"message",message}}function payloadOf(envelope){
let{data,data64}=envelope;return typeof data64=="string"?bytesOf(data64):text(data)}function gapOf(envelope){let from=text(
envelope.from)??"",to=text(envelope.to),reason=text(envelope.reason);if(to!==void 0)return{kind:"gap",gap:reason===void 0?
{from,to}:{from,to,reason}}}function answerOf(envelope){let answer={kind:"answer"},id=text(envelope.id),said=text(envelope.
text);return id!==void 0&&(answer.id=id),said!==void 0&&(answer.text=said),envelope.op==="error"&&(answer.status=Number(
envelope.status)||400),answer}function timeOf(value){if(typeof value!="string"&&typeof value!="number")return;let time=new Date(
value);return Number.isNaN(time.getTime())?void 0:time}function bytesOf(base64){try{return Uint8Array.from(atob(base64),
char=>char.charCodeAt(0))}catch{return}}function parsed(json){try{return JSON.parse(json)}catch{return}}function text(value){
return typeof value=="string"?value:void 0}function isRecord(value){return typeof value=="object"&&value!==null&&!Array.
isArray(value)}function ahead(id,of){let others=new Map(of.split(",").map(partsOf)),leads=id.split(",").map(position=>{let[
epoch,offset]=partsOf(position);return offset-(others.get(epoch)??-1/0)});return Math.max(...leads)}function isId(since){
return/-\d+$/.test(since)}function partsOf(id){let dash=id.lastIndexOf("-");return[id.slice(0,dash),Number(id.slice(dash+
1))]}var EventStream=class{constructor(onEvent,onRetry){this.onEvent=onEvent;this.onRetry=onRetry}onEvent;onRetry;rest="";begun=!1;afterCr=!1;lines=[];event;id;push(piece){
if(piece==="")return;let skip=this.afterCr&&piece.startsWith(`
`)||!this.begun&&piece.startsWith("\uFEFF")?1:0;this.begun=!0,this.afterCr=piece.endsWith("\r");let lines=(this.rest+piece.
slice(skip)).split(/\r\n|\n|\r/);this.rest=lines.pop()??"";for(let line of lines)this.line(line)}line(line){if(line==="")
return this.dispatch();let colon=line.indexOf(":");if(colon===0)return;let field=colon<0?line:line.slice(0,colon),value=colon<
0?"":line.slice(line[colon+1]===" "?colon+2:colon+1);field==="data"?this.lines.push(value):field==="event"?this.event=value:
field==="id"&&!value.includes("\0")?this.id=value:field==="retry"&&/^\d+$/.test(value)&&this.onRetry(Number(value))}dispatch(){
let event={};this.id!==void 0&&(event.id=this.id),this.event&&(event.event=this.event),this.lines.length>0&&(event.data=
this.lines.join(`
`)),this.lines=[],this.event=void 0,this.id=void 0,(event.id!==void 0||event.data!==void 0)&&this.onEvent(event)}};var TRANSPORTS=["sse","ws","poll"],POLL_WAIT_S=25,ASK_AFTER_MS=25e3,GOING_AWAY=[1001,1012,1013],attempts={sse,ws,poll};function addressOf(url,channels,query){
let search=Object.entries(query).filter(pair=>pair[1]!==void 0).map(([name,value])=>`${name}=${encodeURIComponent(value)}`).
join("&");return`${url}${channels.join(",")}${search&&"?"}${search}`}function fieldsOf(accept,token){return token===void 0?
{accept}:{accept,authorization:`Bearer ${token}`}}async function sse(attempt){let{world:world2,url,channels,since,name,token,
signal}=attempt,answer=await world2.fetch(addressOf(url,channels,{since,name,envelope:""}),{headers:fieldsOf("text/event\
-stream",token),cache:"no-store",signal});if(answer.status!==200)return endOf(answer);if(!answer.body||!answer.headers.get(
"content-type")?.startsWith("text/event-stream"))return{why:"unable"};let retryMs,stream=new EventStream(event=>{let word=wordOfEvent(
event);word&&say(attempt,word)},ms=>retryMs=ms),decoder=new TextDecoder("utf-8",{ignoreBOM:!0}),reader=answer.body.getReader();
for(;;){let{done,value}=await reader.read().catch(()=>({done:!0,value:void 0}));if(done||!value)return{why:"over",retryMs};
attempt.heard(),stream.push(decoder.decode(value,{stream:!0}))}}function say(attempt,word){(word.kind!=="position"||!isId(
attempt.since))&&attempt.say(word)}function ws(attempt){let{world:world2,url,channels,since,name,token,signal}=attempt,address=addressOf(
url.replace(/^http/,"ws"),channels,{since,name,access_token:token}),socket;try{socket=world2.socket(address,"encke.v1")}catch{
return Promise.resolve({why:"unable"})}return new Promise(resolve=>{let opened=!1,forget=()=>{},listen=()=>{forget(),forget=
world2.later(ASK_AFTER_MS,()=>{opened&&socket.send('{"op":"ping","ref":0}')})},end=end2=>{forget(),signal.removeEventListener(
"abort",leave),resolve(end2)},leave=()=>{socket.close(),end({why:"over"})};signal.addEventListener("abort",leave),socket.
onopen=()=>{opened=!0,listen()},socket.onmessage=({data})=>{listen(),attempt.heard();let word=wordOf(parsed(String(data)));
word?.kind==="answer"&&word.id!==void 0?say(attempt,{kind:"position",id:word.id}):word&&word.kind!=="answer"&&say(attempt,
word)},socket.onclose=({code,reason})=>{if(!opened)return void handshakeEnd(attempt).then(end,()=>end({why:"over"}));if(code===
4401)return end({why:"token",text:reason});if(code===4403)return end({why:"denied",status:403,text:reason});let ms=/\d+/.
exec(reason)?.[0];end({why:"over",retryMs:GOING_AWAY.includes(code)&&ms?Number(ms):void 0})}})}async function handshakeEnd(attempt){
let batch=await batchOf(attempt,attempt.channels,"now",0);return"why"in batch?batch:{why:"unable"}}async function poll(attempt){
let since=attempt.since;for(let wait=0;;wait=POLL_WAIT_S){let batch=await batchOf(attempt,attempt.channels,since,wait);if("\
why"in batch)return batch;attempt.heard();for(let word of batch.words)attempt.say(word);if(since=batch.next,attempt.signal.
aborted)return{why:"over"}}}async function batchOf(attempt,channels,since,wait){let{world:world2,url,name,token,signal}=attempt,
answer=await world2.fetch(addressOf(url,channels,{since,wait:String(wait),name}),{headers:fieldsOf("application/json",token),
cache:"no-store",signal}),said=answer.headers.get("encke-id");if(answer.status===204)return{words:said===null?[]:[{kind:"\
position",id:said}],next:said??since,more:!1};if(answer.status!==200)return endOf(answer);let body=parsed(await answer.text());
if(!isRecord(body)||!Array.isArray(body.messages))return{why:"unable"};let words=body.messages.map(wordOf).filter(word=>word!==
void 0),gap=wordOf(body.gap);gap&&words.unshift(gap);let next=typeof body.next=="string"?body.next:since;return next!==since&&
words.push({kind:"position",id:next}),{words,next,more:Number(body.more)>0}}async function endOf(answer){let{status}=answer,
passing=status>=500||status===408||status===425||status===429;if(status>=400&&!passing){let text2=await textOf(answer);return status===
401?{why:"token",text:text2}:{why:"denied",status,text:text2}}return answer.body?.cancel().catch(()=>{}),{why:"over",retryMs:retryAfterMs(
answer.headers.get("retry-after"))}}async function textOf(answer){if(!answer.headers.get("content-type")?.startsWith("te\
xt/plain"))return"";let text2=await answer.text().catch(()=>"");return(/.*/.exec(text2.trim())?.[0]??"").slice(0,200)}var WISH_MS=1e3,
WISH_MS_MAX=3e4;function wishOf(ms,failures){return ms===void 0||ms>=WISH_MS?ms:Math.min(WISH_MS*2**failures,WISH_MS_MAX)}
function retryAfterMs(value){return value!==null&&/^\d+$/.test(value)?Number(value)*1e3:void 0}var FIRST_BYTE_MS=5e3,DEAD_MS=6e4,FRESH_MS=3e4,RETRY_MS=2e3,RETRY_MS_MAX=3e4,STRIKES=3,CATCH_UP_MS=2e4,Line=class{constructor(world2,settings,token,onCondition){
this.world=world2;this.settings=settings;this.token=token;this.onCondition=onCondition;this.ladder=settings.transport?[settings.
transport]:TRANSPORTS;let remembered=world2.recall(settings.url);this.proven=this.ladder.find(transport=>transport===remembered),
this.transport=this.proven??this.top,this.condition={state:"closed",transport:this.transport}}world;settings;token;onCondition;parts=[];live;running=!1;changing=!1;asked="";abort=()=>{};endPause=()=>{};heardAt=0;condition;ladder;transport;proven;strikes=0;failures=0;get state(){
return this.condition}add(reader){let{live}=this;if(live&&this.condition.state==="open"&&reader.since==="now"&&this.carries(
reader,live)){reader.since=live.since,live.readers.add(reader),this.parts.length===0&&this.parts.push(live);return}let part=this.
parts.find(part2=>!part2.asked&&part2.since===reader.since);part?part.readers.add(reader):this.parts.push({since:reader.
since,asked:!1,readers:new Set([reader])}),this.change()}remove(reader){for(let part of this.parts)part.readers.delete(reader);
this.parts=this.parts.filter(part=>part.readers.size>0),this.change()}wake(why){this.endPause();let stale=this.world.now()-
this.heardAt>FRESH_MS;this.condition.state==="open"&&(why==="online"||stale)&&this.abort("woken")}change(){this.changing||
(this.changing=!0,this.world.later(0,()=>{this.changing=!1;let isServed=this.parts.length===1&&(!this.live||this.parts[0]===
this.live);this.running&&isServed&&channelsOf(this.parts).join()===this.asked||(this.abort("changed"),this.endPause(),!this.
running&&this.parts.length>0&&this.run())}))}async run(){this.running=!0;let refused=!1;for(;this.parts.length>0;){let renewed=refused,
begunAt=this.world.now(),{end,cause,heard}=await this.attempt(refused);if(heard&&(refused=!1),!(cause==="changed"||cause===
"woken")){if(end.why==="denied"||end.why==="token"&&refused){let status=end.why==="denied"?end.status:401,{text:text2}=end,
rest=await this.sift(status,text2);if(refused=!1,rest==="some")continue;if(rest==="all")return this.tell({state:"denied",
transport:this.transport,status,text:text2});await this.pause({why:"over"});continue}if(refused=end.why==="token",refused){
heard&&renewed&&this.world.now()-begunAt<RETRY_MS&&await this.pause({why:"over"});continue}this.falls(end,heard)||await this.
pause(end)}}this.running=!1,this.tell({state:"closed",transport:this.transport})}async attempt(fresh){let abort=new AbortController,
cause,heard=!1,forget=()=>{};this.abort=why=>{cause??=why,forget(),abort.abort()};let expect=(ms,otherwise)=>{forget(),forget=
this.world.later(ms,()=>this.abort(otherwise))},end=await(async()=>{this.tell({state:"connecting",transport:this.transport}),
expect(CATCH_UP_MS,"dead");let token=await this.token(fresh);this.asked=channelsOf(this.parts).join();for(let part2 of this.
parts)part2.asked=!0;let attempt={world:this.world,url:this.settings.url,name:this.settings.name,token,channels:[],since:"",
signal:abort.signal,heard:()=>{abort.signal.aborted||(expect(DEAD_MS,"dead"),this.heardAt=this.world.now(),heard||this.opened(),
heard=!0)},say:()=>{}},failed=this.parts.length>1?await this.catchUp(attempt):void 0,[part]=this.parts;return failed||!part||
abort.signal.aborted?failed??{why:"over"}:(attempt.channels=channelsOf([part]),attempt.since=part.since,attempt.say=word=>{
abort.signal.aborted||spread(word,part)},this.live=part,expect(FIRST_BYTE_MS,"silent"),attempts[this.transport](attempt))})().
catch(()=>({why:"over"}));return this.live=void 0,forget(),{end:cause==="silent"?{why:"unable"}:end,cause,heard}}async sift(status,text2){
let readers=this.parts.flatMap(part=>[...part.readers]),lists=new Map(readers.map(({channels})=>[channels.join(),channels])),
ends=new Map;if(lists.size>1){let token;try{token=await this.token(!1)}catch{return"none"}let abort=new AbortController,
forget=this.world.later(CATCH_UP_MS,()=>abort.abort()),{url,name}=this.settings,asks=[...lists].map(async([key,channels])=>{
let attempt={world:this.world,url,name,token,channels,since:"now",signal:abort.signal,heard(){},say(){}},batch=await batchOf(
attempt,channels,"now",0);ends.set(key,"why"in batch?batch:void 0)}),failed=(await Promise.allSettled(asks)).some(ask=>ask.
status==="rejected");forget();let refused=[...ends.values()].filter(end=>end?.why==="denied"||end?.why==="token").length,
unknown=failed||[...ends.values()].some(end=>end?.why==="over"||end?.why==="unable");if(refused===0&&unknown)return"none";
refused===0&&ends.clear()}let denied=readers.filter(({channels})=>{let end=ends.get(channels.join());return ends.size===
0||end?.why==="denied"||end?.why==="token"});for(let part of this.parts)for(let reader of denied)part.readers.delete(reader);
this.parts=this.parts.filter(part=>part.readers.size>0),this.running=this.parts.length>0;for(let reader of denied){let end=ends.
get(reader.channels.join());end?.why==="denied"?reader.denied(end.status,end.text):reader.denied(status,text2)}return this.
running?"some":"all"}async catchUp(attempt){let parts=[...this.parts];for(let part of parts){let more=part.readers.size>
0;for(;more;){let{since:since2}=part,batch=await batchOf(attempt,channelsOf([part]),since2,0);if("why"in batch)return batch;
if(attempt.signal.aborted)return{why:"over"};for(let word of batch.words)spread(word,part);more=batch.more&&batch.next!==
since2&&part.readers.size>0,part.since=batch.next}}let since=parts.find(({since:since2})=>isId(since2))?.since??"",readers=new Set(
parts.flatMap(part=>[...part.readers])),later=this.parts.filter(part=>!parts.includes(part));this.parts=[{since,asked:!0,
readers},...later].filter(part=>part.readers.size>0)}opened(){this.failures=0,this.strikes=0,this.proven=this.transport,
this.settings.transport||this.world.remember(this.settings.url,this.transport),this.tell({state:"open",transport:this.transport})}falls(end,heard){
if(heard)return!1;if(end.why!=="unable")return this.transport=this.proven??this.top,!1;if(this.transport===this.proven&&
++this.strikes<STRIKES)return!1;this.strikes=0;let next=this.ladder[this.ladder.indexOf(this.transport)+1];return this.transport=
next??this.top,next!==void 0}pause(end){let wish=end.why==="over"?wishOf(end.retryMs,this.failures):void 0,grown=Math.min(
RETRY_MS*2**this.failures++,RETRY_MS_MAX),delayMs=wish===void 0?grown*(.5+this.world.random()):wish*(1+this.world.random()/
2);return this.tell({state:"waiting",transport:this.transport,delayMs}),new Promise(resolve=>{let forget=this.world.later(
delayMs,resolve);this.endPause=()=>{forget(),resolve()}})}carries(reader,live){let asked=this.asked.split(",");return this.
parts.every(part=>part===live)&&reader.channels.every(channel=>asked.includes(channel))}get top(){return this.ladder[0]??
"sse"}tell(condition){this.condition=condition,this.onCondition(condition)}};function spread(word,part){if(word.kind==="\
answer")return;let id=word.kind==="message"?word.message.id:word.kind==="gap"?word.gap.to:word.id;part.since=id;for(let reader of part.
readers){let by=isId(reader.since)?ahead(id,reader.since):1/0;by<0||by===0&&word.kind!=="gap"||(word.kind==="gap"&&reader.
gap(word.gap),word.kind==="message"&&reader.channels.includes(word.message.channel)&&reader.take(word.message),reader.since=
id)}}function channelsOf(parts){let readers=parts.flatMap(part=>[...part.readers]);return[...new Set(readers.flatMap(reader=>reader.
channels))].sort()}var Place=class{constructor(member,number){this.member=member;this.number=number;let{reader}=member,arrived=()=>this.arrived();
this.reader={channels:reader.channels,get since(){return reader.since},set since(id){reader.since=id,arrived()},take:message=>reader.
take(message),gap:gap=>reader.gap(gap),denied:(status,text2)=>reader.denied(status,text2)}}member;number;line;closed=!1;rejected=!1;waits=!1;reader;tell(condition){
return this.waits=condition.state==="open"&&!isId(this.member.reader.since),this.waits||this.member.listen(condition),!this.
waits}arrived(){let condition=this.line?.condition;this.waits&&condition?.state==="open"&&this.tell(condition)}},HELD_MS=5e3,
GATHER_MS=100,STREAMS_WARN=3,Pool=class{constructor(world2,carrierOf,warn){this.world=world2;this.carrierOf=carrierOf;this.
warn=warn}world;carrierOf;warn;lines=new Map;calls=new Set;warned=new Set;joined=0;join(member){let place=new Place(member,
this.joined++);return typeof member.token=="function"&&typeof member.share!="string"?this.identify(place):this.enter(place,
identityOf(member.token)),place}leave(place){place.closed=!0,this.exit(place)}deny(place,status,text2){let transport=place.
line?.condition?.transport??"sse";this.leave(place),place.member.listen({state:"denied",transport,status,text:text2})}wake(why){
for(let line of this.lines.values())line.carrier.wake(why)}async identify(place){let call2=this.call(place);this.calls.add(
call2);let{identity,held}=await call2;if(this.calls.delete(call2),this.calls.size>0){let late=new Promise(resolve=>this.
world.later(GATHER_MS,resolve));await Promise.race([Promise.all(this.calls),late])}place.closed||this.enter(place,identity,
held)}async call(place){try{let held=await this.ask(place);return{identity:claimsOf(held.token),held}}catch{return{identity:{
text:`failed ${place.number}`,subject:!1},held:void 0}}}async ask({member:{token}}){return{token:typeof token=="function"?
await token():token,atMs:this.world.now()}}enter(place,identity,held){let{member}=place,plan=planOf(member,identity),line=this.
lines.get(plan.key),fresh=!line;line??=this.open(plan,typeof member.share=="string"),held&&(line.held=held),place.line=line,
line.places.add(place),line.condition&&queueMicrotask(()=>{let{condition}=line;place.line===line&&condition&&!place.tell(
condition)&&member.listen({...condition,state:"connecting"})}),line.carrier.add(place.reader),fresh&&this.count(member.settings.
url)}open(plan,named){let tell=condition=>{if(line.condition=condition,condition.state!=="denied")for(let place of line.
places)condition.state==="open"&&(place.rejected=!1),place.tell(condition)},token=fresh=>this.tokenOf(line,fresh),shared={
...plan,named,places:new Set,condition:void 0,held:void 0},line=Object.assign(shared,{carrier:this.carrierOf(plan,token,
tell)});return this.lines.set(plan.key,line),line}exit(place){let{line}=place;line&&(place.line=void 0,line.places.delete(
place),line.carrier.remove(place.reader),line.places.size===0&&this.world.later(0,()=>line.places.size===0&&this.close(line)))}close(line){
this.lines.get(line.key)===line&&(this.lines.delete(line.key),line.carrier.close?.())}move(place,identity,held){this.exit(
place),this.enter(place,identity,held)}async tokenOf(line,fresh){let{held}=line;if(held&&!fresh&&this.world.now()-held.atMs<
HELD_MS)return held.token;let same,failure;for(let place of[...line.places].sort((a,b)=>b.number-a.number)){let answer=await this.
ask(place).catch(error=>{failure=error});if(!answer||place.line!==line)continue;let identity=claimsOf(answer.token);if(!line.
named&&typeof place.member.token=="function"&&!this.stays(place,line,identity)){fresh&&place.rejected?this.deny(place,401,
"the server rejected two different tokens"):this.move(place,identity,answer),place.rejected=fresh;continue}if(same=answer,
!fresh||!held||answer.token!==held.token)break}if(same)line.held=same;else if(failure!==void 0&&line.places.size>0)throw failure;
return same?.token}stays(place,line,identity){let plan=planOf(place.member,identity);if(plan.key===line.key)return!0;if(line.
tabs||plan.tabs||this.lines.has(plan.key))return!1;this.lines.delete(line.key),line.key=plan.key,this.lines.set(line.key,
line);for(let other of line.places)other!==place&&this.check(other,line);return!0}async check(place,line){let{token}=place.
member,{identity,held}=typeof token=="function"?await this.call(place):{identity:identityOf(token),held:void 0};place.line===
line&&planOf(place.member,identity).key!==line.key&&this.move(place,identity,held)}count(url){let{origin}=new URL(url);if(this.
warned.has(origin))return;let streams=[...this.lines.values()].filter(line=>line.places.size>0&&new URL(line.settings.url).
origin===origin);streams.length<STREAMS_WARN||(this.warned.add(origin),this.warn(`encke: this page has ${streams.length}\
 streams to ${origin}, and over HTTP/1.1 a browser opens six connections to a server. Subscriptions share a stream if ur\
l, name, transport, share and the claims of the token are the same. If their tokens differ but belong to one user with t\
he same rights, name the user: share: 'USER'. Close unused subscriptions.`))}};function planOf({settings,token,share},identity){
let hasToken=token!==void 0,tabs=typeof share=="string"||(share??(typeof token!="function"||identity.subject)),user=typeof share==
"string"?["share",share]:["token",identity.text];return{key:JSON.stringify([settings.url,settings.name,settings.transport,
tabs,hasToken,...user]),settings,hasToken,tabs}}function identityOf(token){return{text:typeof token=="string"?token:"",subject:!1}}
function claimsOf(token){let[head,body="",signature]=token?.split(".")??[],claims;try{claims=parsed(atob(body.replace(/-/g,
"+").replace(/_/g,"/")))}catch{}if(signature===void 0||!isRecord(claims))return identityOf(token);let{exp,nbf,iat,jti,...rest}=claims;
return{text:JSON.stringify([head,rest]),subject:typeof rest.sub=="string"}}var PUBLISH_OPTIONS={channel:!0,event:!0,type:!0,key:!0},PublishError=class extends Error{constructor(status,text2){super(
text2);this.status=status;this.name="PublishError"}status},REPEAT_MS=1e5,ANSWER_MS=15e3,RETRY_MS2=500,RETRY_MS_MAX2=8e3,
Outbox=class{constructor(world2,url){this.world=world2;this.url=url}world;url;last=Promise.resolve();endPause=()=>{};count=0;publish(channel,data,options,token){
let unknown=unknownOption("publish",options,PUBLISH_OPTIONS);if(unknown)return Promise.reject(unknown);let content=contentOf(
data);if(content instanceof TypeError)return Promise.reject(content);let request={channel,...content,options:{...options,
key:options.key??this.newKey()},token},published=this.last.then(()=>this.deliver(request));return this.last=published.catch(
()=>{}),published}wake(){this.endPause()}async deliver(request){let since=this.world.now(),refused=!1;for(let failures=0;;){
let answer=await this.send(request,refused).catch(()=>{});if(answer?.ok){let body=parsed(await answer.text().catch(()=>""));
if(isRecord(body))return{id:String(body.id??""),subscribers:Number(body.subscribers??0)}}let end=answer&&await endOf(answer.
bodyUsed?answer:answer.clone());if(answer&&end?.why==="token"&&!refused){refused=!0;continue}let late=this.world.now()-since>
REPEAT_MS;if(answer&&(end?.why!=="over"||late))throw await failureOf(answer);if(late)throw new PublishError(0,"no answer\
: the server cannot be reached");let wish=end?.why==="over"?wishOf(end.retryMs,failures):void 0,grown=Math.min(RETRY_MS2*
2**failures++,RETRY_MS_MAX2);await this.pause(wish??grown*(.5+this.world.random()))}}async send({channel,body,type,options,
token},fresh){let fields=fieldsOf("application/json",await token(fresh));fields["idempotency-key"]=options.key??"",(options.
type??type)&&(fields["content-type"]=options.type??type),options.event&&(fields["encke-event"]=options.event);let abort=new AbortController,
forget=this.world.later(ANSWER_MS,()=>abort.abort()),{signal}=abort,url=addressOf(this.url,[channel],{});return this.world.
fetch(url,{method:"POST",headers:fields,body,signal}).finally(forget)}newKey(){return`${this.world.random().toString(36).
slice(2)}-${this.count++}`}pause(ms){return new Promise(resolve=>{let forget=this.world.later(ms,resolve);this.endPause=
()=>{forget(),resolve()}})}};function unknownOption(of,options,known){let name=Object.keys(options).find(name2=>!Object.
hasOwn(known,name2));return name===void 0?void 0:new TypeError(`${of}: unknown option "${name}": expected ${Object.keys(
known).join(", ")}`)}function contentOf(data){if(typeof data=="string")return{body:data,type:"text/plain;charset=utf-8"};
if(data instanceof Blob||data instanceof ArrayBuffer)return{body:data,type:""};if(ArrayBuffer.isView(data))return{body:data,
type:""};let kind=Object.prototype.toString.call(data).slice(8,-1),json=/^(Object|Array|Number|Boolean|Null|Date)$/.test(
kind)?JSON.stringify(data):void 0;return json===void 0?new TypeError(`publish: cannot send a value of type ${kind}: expe\
cted text, bytes, or a value for JSON`):{body:json,type:"application/json"}}async function failureOf(answer){return new PublishError(
answer.status,await textOf(answer)||`refused with ${answer.status}`)}var TOKEN_MS=5e3,Counter=class{constructor(world2,settings,hasToken){this.world=world2;let token=fresh=>hasToken?this.askToken(
fresh):Promise.resolve(void 0);this.line=new Line(world2,settings,token,condition=>{for(let page2 of this.pages.values())
page2.post({tell:"condition",condition})})}world;pages=new Map;line;onToken=()=>{};get idle(){return this.pages.size===0}close(){
let pages=[...this.pages.values()];this.pages.clear();for(let page2 of pages)this.forget(page2)}forget(page2){page2.gone.
abort();for(let reader of page2.readers.values())this.line.remove(reader)}hear(from,ask,post){let page2=this.pages.get(from);
if(!page2){if(ask.ask==="bye")return;page2={post,readers:new Map,gone:new AbortController},this.pages.set(from,page2),whenGone(
from,page2.gone.signal,()=>this.hear(from,{ask:"bye"},post)),this.line.state.state!=="closed"&&post({tell:"condition",condition:this.
line.state})}switch(ask.ask){case"join":if(!page2.readers.has(ask.reader)){let{readers}=page2,reader=distant(ask.reader,
ask.channels,ask.since,post,()=>readers.delete(ask.reader));readers.set(ask.reader,reader),this.line.add(reader)}break;case"\
leave":{let reader=page2.readers.get(ask.reader);page2.readers.delete(ask.reader),reader&&this.line.remove(reader);break}case"\
wake":this.line.wake(ask.why);break;case"token":this.onToken(from,ask.failed?new Error("the page has no token now"):ask.
token);break;case"bye":this.pages.delete(from),this.forget(page2),this.onToken(from,void 0);break}}async askToken(fresh){
let failure;for(let[name,page2]of[...this.pages].reverse()){if(page2.readers.size===0)continue;let answer=await this.askPage(
name,page2,fresh);if(typeof answer=="string")return answer;failure??=answer}if(failure)throw failure}askPage(name,page2,fresh){
return new Promise(resolve=>{let forget=this.world.later(TOKEN_MS,()=>resolve(new Error("a page does not respond")));this.
onToken=(from,answer)=>{from!==name&&typeof answer!="string"||(forget(),resolve(answer))},page2.post({tell:"token",fresh})})}};
function distant(reader,channels,begin,post,onDenied){let since=begin;return{channels,get since(){return since},set since(id){
since===begin&&post({tell:"begins",reader,since:id}),since=id},take:message=>post({tell:"message",reader,message}),gap:gap=>post(
{tell:"gap",reader,gap}),denied(status,text2){onDenied(),post({tell:"denied",reader,status,text:text2})}}}var Remote=class{constructor(make,token,onCondition){
this.token=token;this.onCondition=onCondition;this.pipe=make(tell=>this.hear(tell),()=>{for(let[key,reader]of this.readers)
this.join(key,reader)})}token;onCondition;readers=new Map;pipe;count=0;add(reader){let key=this.count++;this.readers.set(
key,reader),this.join(key,reader)}remove(reader){for(let[key,one]of this.readers)one===reader&&(this.readers.delete(key),
this.pipe.post({ask:"leave",reader:key}))}wake(why){this.pipe.post({ask:"wake",why})}close(){this.pipe.close()}join(key,{
channels,since}){this.pipe.post({ask:"join",reader:key,channels,since})}hear(tell){if(tell.tell==="condition")return this.
onCondition(tell.condition);if(tell.tell==="token"){this.token(tell.fresh).then(token=>this.pipe.post({ask:"token",token,
failed:!1}),()=>this.pipe.post({ask:"token",token:void 0,failed:!0}));return}let reader=this.readers.get(tell.reader);reader&&
(tell.tell==="denied"?(this.readers.delete(tell.reader),reader.denied(tell.status,tell.text)):tell.tell==="begins"?reader.
since=tell.since:tell.tell==="gap"?(reader.since=tell.gap.to,reader.gap(tell.gap)):(!isId(reader.since)||ahead(tell.message.
id,reader.since)>0)&&(reader.since=tell.message.id,reader.take(tell.message)))}},PAGE=[...crypto.getRandomValues(new Uint32Array(
3))].map(word=>word.toString(36)).join(""),forever=new Promise(()=>{}),lockOf=page2=>`encke:page:${page2}`,told;function alive(){
return told??=new Promise(resolve=>{if(!navigator.locks)return resolve();navigator.locks.request(lockOf(PAGE),()=>(resolve(),
forever))})}function whenGone(page2,signal,run){navigator.locks&&page2!==PAGE&&navigator.locks.request(lockOf(page2),{signal},
run).catch(()=>{})}var VERSION="encke.v2";function workerPipe(script,key,settings,hasToken,failed){return(tell,again)=>{
let worker=new SharedWorker(script,{type:"module",name:VERSION}),{port}=worker;worker.onerror=failed,port.onmessage=({data})=>tell(
data);let hello={page:PAGE,key,settings,hasToken},greeted=alive().then(()=>port.postMessage(hello)),post=ask=>{greeted.then(
()=>port.postMessage(ask))},closed=new AbortController,{signal}=closed;return addEventListener("pagehide",()=>port.postMessage(
{ask:"bye"}),{signal}),addEventListener("pageshow",({persisted})=>persisted&&again(),{signal}),{post,close(){closed.abort(),
post({ask:"bye"}),greeted.then(()=>port.close())}}}}function serveTabs(scope,world2){let counters=new Map;scope.addEventListener(
"connect",event=>{let port=event.ports[0];if(!port)return;let hello;port.onmessage=({data})=>{if(!hello){hello=data;return}
let counter=counters.get(hello.key);counter||counters.set(hello.key,counter=new Counter(world2,hello.settings,hello.hasToken)),
counter.hear(hello.page,data,tell=>port.postMessage(tell)),counter.idle&&counters.delete(hello.key)}})}function electedPipe(key,make){
return(tell,again)=>{let air=new BroadcastChannel(`${VERSION}:${key}`),send=broadcast=>air.postMessage(broadcast),counter,
post=ask=>{counter?counter.hear(PAGE,ask,tell):send({from:PAGE,ask})};air.onmessage=({data})=>{"leads"in data?again():"t\
ell"in data?data.to===PAGE&&tell(data.tell):counter?.hear(data.from,data.ask,tell2=>send({to:data.from,tell:tell2}))};let closed=new AbortController,
{signal}=closed,release=()=>{},ready=alive().then(()=>{let lead=()=>(counter=make(),again(),send({leads:!0}),new Promise(
resolve=>release=resolve));navigator.locks.request(`${VERSION}:${key}`,{signal},lead).catch(()=>{})});return addEventListener(
"pagehide",()=>post({ask:"bye"}),{signal}),addEventListener("pageshow",({persisted})=>persisted&&again(),{signal}),{post:ask=>{
ready.then(()=>signal.aborted||post(ask))},close:()=>{ready.then(()=>{post({ask:"bye"}),closed.abort(),counter?.close(),
air.close(),release()})}}}}var SUBSCRIBE_OPTIONS={url:!0,since:!0,token:!0,transport:!0,name:!0,share:!0,json:!0,onGap:!0,onState:!0};function subscribe(channels,onMessage,options={}){
let wanted=typeof channels=="string"?[channels]:[...channels],[first]=wanted;if(first===void 0)throw new TypeError("subs\
cribe: name at least one channel");let unknown=unknownOption("subscribe",options,SUBSCRIBE_OPTIONS);if(unknown)throw unknown;
let{name,transport,token,share,json}=options;if(transport!==void 0&&!TRANSPORTS.includes(transport))throw new TypeError(
`subscribe: unknown transport "${transport}": expected ${TRANSPORTS.join(", ")}`);let url=absolute(options.url??"/push/").
replace(/\/*$/,"/"),{pool,outboxes}=page??=open(),take=onMessage,reader={channels:wanted,since:options.since??"now",take:message=>call(
()=>take(json?valueOf(message.data):message.data,message)),gap:gap=>call(()=>options.onGap?.(gap)),denied(status,text2){
console.warn(`encke: cannot subscribe to ${wanted.join()}: ${text2||"no reason given"} (status ${status})`),pool.deny(place,
status,text2)}},listen=condition=>call(()=>options.onState?.(condition.state,condition)),place=pool.join({settings:{url,
name,transport},token,share,reader,listen}),source=async()=>typeof token=="function"?token():token,outbox=outboxes.get(url)??
new Outbox(world,url);return outboxes.set(url,outbox),{publish:(data,options2={})=>outbox.publish(options2.channel??first,
data,options2,source),close:()=>pool.leave(place)}}function absolute(url){let page2=globalThis.location?.href;if(!page2&&
!URL.canParse(url))throw new TypeError(`subscribe: the url "${url}" is relative to a page, and there is none: name the s\
erver`);return new URL(url,page2).href}var page;function open(){let pool=new Pool(world,carrierFor,text2=>console.warn(text2)),
outboxes=new Map;return globalThis.addEventListener?.("online",()=>{pool.wake("online");for(let outbox of outboxes.values())
outbox.wake()}),globalThis.document?.addEventListener("visibilitychange",()=>document.hidden||pool.wake("visible")),{pool,
outboxes}}function valueOf(data){let value=typeof data=="string"?parsed(data):void 0;return value===void 0?data:value}function carrierFor({
key,settings,hasToken,tabs},token,tell){let elect=()=>tabs&&globalThis.document&&typeof BroadcastChannel=="function"&&navigator.
locks?new Remote(electedPipe(key,()=>new Counter(world,settings,hasToken)),token,tell):new Line(world,settings,token,tell),
own=new URL(import.meta.url);return!(tabs&&typeof SharedWorker=="function"&&own.pathname.endsWith("/encke.js"))||own.origin!==
globalThis.location?.origin?elect():new Fallback(failed=>new Remote(workerPipe(own.href,key,settings,hasToken,failed),token,
tell),elect)}var Fallback=class{carrier;readers=new Set;constructor(first,second){this.carrier=first(()=>{this.carrier=second();
for(let reader of this.readers)this.carrier.add(reader)})}add(reader){this.readers.add(reader),this.carrier.add(reader)}remove(reader){
this.readers.delete(reader),this.carrier.remove(reader)}wake(why){this.carrier.wake(why)}close(){this.carrier.close?.()}};
function call(run){try{run()}catch(error){(globalThis.reportError??console.error)(error)}}var notes=new Map,world={fetch:(url,init)=>fetch(
url,init),socket:(url,protocol)=>new WebSocket(url,protocol),now:()=>performance.now(),random:()=>Math.random(),later(ms,run){
let timer=setTimeout(run,ms);return()=>clearTimeout(timer)},recall(key){try{return sessionStorage.getItem(`encke:${key}`)}catch{
return notes.get(key)??null}},remember(key,value){notes.set(key,value);try{sessionStorage.setItem(`encke:${key}`,value)}catch{}}};
typeof SharedWorkerGlobalScope=="function"&&self instanceof SharedWorkerGlobalScope&&serveTabs(self,world);export{PublishError,subscribe};
