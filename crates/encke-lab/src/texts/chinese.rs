//! The texts in Traditional Chinese (繁體中文), with the terms of Taiwan.

use super::{ExperimentText, Words};

pub(super) static WORDS: Words = Words {
    tag: "zh-Hant",
    title: "Encke 實驗室",
    preface: "每個實驗都在這部機器上、同一次執行之中，把舊方法、改善方法與 Encke 的方法並列比較。數值屬於這部機器：\
              能夠套用到另一部機器的是比例與形狀，而不是大小。",
    machine: "{processors} × {processor}，{memory}，{system}，檔案描述子 {descriptors} 個，C 樣本以 {compiler} 編譯",
    seed: "種子 {seed}",
    reading: "數值是中位數；其後是與第一列的比值，在每一輪之內計算。~ 表示看不出差異：該比值的 95 % 區間包含 1。\
              – 表示這一格在此處無法測量。",
    question: "問題",
    expectation: "做法與預期",
    seen: "觀察結果",
    lesson: "結論",
    yes: "有觀察到",
    no: "未觀察到",
    unclear: "無法判定",
    not_measured: "未測量",
    ratio: "{compared}: {ratio}（{low} 至 {high}）",
    baseline: "基準",
    differs: "有差異",
    no_difference: "看不出差異",
    untimed: "不計時",
    too_few: "無法判定：只有 {rounds} 輪",
    absent: "無法測量：{reason}",
    cpu_time: "CPU 時間",
    wall_time: "實際經過時間",
    times_of_kinds: "{time}（{unit}）；{rounds} 輪，{seconds} 秒。",
    times_of_amounts: "{time}（{unit}），依{axis}排列；{rounds} 輪，{seconds} 秒。",
    facts: "逐步列出發生了什麼。",
    counted: ["每一次", "時脈週期", "指令", "分支預測失誤"],
    unoptimised: "編譯時未最佳化",
    not_optimised: "這個程式編譯時未開啟最佳化：Encke 各列的數值沒有意義。",
    experiments: &[
        ExperimentText {
            name: "accept",
            title: "伺服器如何等待前來連線的用戶端",
            question: "某個轉播程式的設定伺服器，不論負載如何，每秒只能回應 94 個請求：它的 accept 迴圈每看一次就睡 10 ms。\
                       改成只在沒人來的時候才睡，每個用戶端各有 94；換成 poll 則約有 2,000，但四個用戶端時反而比兩個時少，\
                       作者不明白為什麼。每一種等待方式的代價是什麼？那些迴圈裡還藏著什麼？",
            expectation: "報告中的三種迴圈（以 C 寫成）和一個建立在 Encke reactor 上的伺服器，對同樣的請求回應同樣的 1,348 \
                          位元組；每個請求都建立新連線，同時有 c 個用戶端。伺服器與用戶端都是這個行程的執行緒。報告的迴圈為每條連線\
                          啟動一個執行緒，Encke 則一個也不啟動。時間是實際經過時間；執行緒數與執行緒之間的切換次數，\
                          以包含用戶端在內的整個行程計算。\n\n預期睡眠會成為定律：第一列的速率是 1/10 ms，第二列則是每個用戶端\
                          各有這麼多。預期 poll 會打破它，而剩下的代價是執行緒：處理器不多時，每個請求多一個執行緒，就多出切換，\
                          速率因而彎折。",
            lesson: "只有 reactor 可以等待：有工作時，核心會通知。而且，只需幾微秒的工作不需要自己的執行緒：啟動它、切換到它，\
                     花的時間還更長。",
            claims: &[
                "總是睡眠的迴圈，不論有幾個用戶端，每秒至多 105 個請求。",
                "只在沒人來時睡眠：四個用戶端合計至少是一個用戶端的 2.5 倍。",
                "c = 1 時，poll 所需時間至多為五分之一。",
                "在每一個 c，epoll 上的 Encke reactor 都比每條連線一個執行緒的 poll 更省時間。",
                "在每一個 c，epoll 上的 Encke reactor 至多花其三分之一的時間。",
            ],
        },
        ExperimentText {
            name: "backlog",
            title: "建立連線從哪裡開始要花一秒",
            question: "一位聊天程式的作者讓 N 個用戶端同時連線。到 200 為止，每個只要一毫秒；大約從 230 起，卻要好幾秒。\
                       listen 的 backlog 是 128，而框架把它藏了起來。backlog 決定的是什麼？這條邊界有多銳利？",
            expectation: "N 條連線同時開始，而伺服器正忙著別的事；之後它一直 accept，直到一條不剩。這裡呈現的是最後一個用戶端\
                          連上所需的時間；旁邊則是核心丟棄了多少次嘗試，以及最後有多少用戶端自以為已經連上、伺服器卻還沒有 accept。\
                          \n\n只要 backlog 容得下這一波，預期只需幾毫秒；只要多出一次嘗試，預期就要一秒：核心默默丟棄它，TCP 在 1 秒後\
                          重試（RFC 6298），再過 2 秒又試一次。不論程式要求多少，系統的 net.core.somaxconn 都會加以截短，\
                          同樣默不作聲；遇到這種情況，各列會註明。",
            lesson: "backlog 不是能連上多少，而是你移開視線時可以來多少。請要求 4,096，讓系統允許它，並留意丟棄的計數器。\
                     Encke 會要求這個值，若被系統截短，啟動時會警告，並且計數。",
            claims: &[
                "backlog 為 128 時，一波 230 條連線要花一秒。",
                "使用 Encke 的預設值，同樣的一波至多花其五分之一。",
                "邊界隨 backlog 移動：511 容得下 230，而一波 600 要花一秒。",
                "Encke 的預設值容得下最大的一波：至多是 128 所花時間的五分之一。",
            ],
        },
        ExperimentText {
            name: "comet",
            title: "一個聊天室容得下多少人",
            question: "某個聊天伺服器讓用戶端以長輪詢等待。50 個用戶端時，一則訊息 28 ms 就傳到所有人；1,000 個要 4.65 秒，\
                       2,000 個要 9.48 秒：500 人是還像聊天室的上限。它的記憶體每多一個用戶端就增加 10 KB，而從 1,000 個到 2,000 個\
                       卻幾乎沒有增加，作者並未說明原因。N 個用戶端在連線時、在有人說一句話時、以及在等待時，各要付出什麼代價？",
            expectation: "伺服器以獨立的行程啟動。N 個用戶端來自 `encke load`，在這個行程的一個執行緒上同時連線；c 是直到最後一個得到回應\
                          所需的時間。接著發布一則 64 位元組的訊息：r 是從第一個收到的用戶端到最後一個的時間，與報告的量法相同；\
                          旁邊是第一個等了多久。全部等待時，讀取伺服器的位址空間（VSZ）與常駐記憶體（RSS）。然後全部離開。下一輪\
                          又換一個新的伺服器，好讓記憶體只屬於這 N 個。虛線是報告的曲線，在其作者的機器上，用戶端以 Perl 寫成。\
                          \n\n預期 c 與 r 隨 N 增加，不會更快，也沒有 backlog 128 在 230 造成的階梯；r 是報告的百分之一或更少。預期記憶體\
                          隨每條連線增加。沒有連線加入之處，它才會變平：最後一列允許 1,000 條，其餘一律拒絕。",
            lesson: "等待中的連線不必占用伺服器自身超過幾百位元組；只編碼一次的訊息，對每條連線的代價是一次傳送。所以聊天室的上限不再是 500。\
                     變平的記憶體曲線表示別的東西已經用完。在報告裡，多出的 1,000 條連線只用了 396 KB，以它自己的每條 10 KB 計算，只夠約 \
                     38 條：比當時行程預設的 1,024 個檔案描述子多不了多少。同一個框架以 1,024 個檔案描述子重試，2,000 個用戶端中容納了 \
                     1,015 個，記憶體同樣變平；檔案描述子更多時，則是一條直線。其他的都在 backlog 裡等待，而它才剛被提高到 4,096：\
                     就它們所知，自己已經連上。",
            claims: &[
                "2,000 個用戶端時，不論哪一種傳輸方式，r 至多是報告的 9.48 秒的百分之一。",
                "2,000 個用戶端時，不論哪一種傳輸方式，c 至多是報告的 2.62 秒的五分之一。",
                "500 個用戶端時，沒有人在等第二次嘗試：c 不到一秒。",
                "2,000 個用戶端時，一條連線至多占用伺服器 2 KB 的常駐記憶體。",
                "從 1,000 到 2,000，只有在僅放行 1,000 條之處，記憶體才是平的。",
            ],
        },
        ExperimentText {
            name: "fanout",
            title: "告訴所有人的代價",
            question: "把一則訊息送給 N 個訂閱者，需要 N 次傳送。核心為此要求的最低代價是什麼？換別的方式請求能省下什麼？\
                       伺服器又以它的頻道、歷史與訊框添上什麼？",
            expectation: "N 條 loopback 連線由一個別無他事的執行緒讀取。一則 64 位元組的訊息，加上使它成為訊框的 2 個位元組，送往每一條：\
                          逐條以 send；以一次 writev 送出八則訊息；以上面什麼都沒有的 Encke reactor，在 epoll 上，以及在 io_uring 上\
                         （一次系統呼叫全部提交）；還有以獨立行程執行的 Encke，它由一個請求得到訊息，再送往 N 個 WebSocket。\
                          所有人都收到這一則之後，才送下一則。呈現的是傳送端的 CPU 時間：執行緒的，或 Encke 全部執行緒的，請求也計算在內。\
                          \n\n預期 send 在每一處都占去大部分的代價：那是 TCP 自己的工作，在 loopback 上還包括接收端的一半。沒有任何呼叫能一次把\
                          一則訊息交給許多 TCP 連線：sendmmsg 用於單一 socket 的資料包。io_uring 省下的是進入核心的路，而不是在其中所做的事。\
                          所以，能省的是傳送的次數：對同一個訂閱者有好幾則訊息時，就一起送。",
            lesson: "下限由核心決定：每人一次傳送。伺服器能貼近它就算好，而減少傳送次數就能低於它：一次傳送八則訊息，只比一則貴一點。Encke 把訊息\
                     為所有人只編碼一次，為每個訂閱者保存一個位置而不是一條佇列，並且把上次以來到達的一切，以一次呼叫送出。",
            claims: &[
                "在每一個 N，一次 writev 送八則訊息，至多花八次 send 的一半。",
                "在最大的 N，epoll 上的 Encke reactor 至多花單純 send 的 1.25 倍。",
                "在最大的 N，把全部一次提交給 io_uring，所花時間不超過單純 send。",
                "在最大的 N，整個 Encke 至多花單純 send 的 1.5 倍。",
                "在最大的 N，八則訊息一起發布，Encke 所花時間至多是逐則發布的一半。",
            ],
        },
        ExperimentText {
            name: "mux",
            title: "從事件到連線",
            question: "一份報告以 10,000 條連線比較 poll 與 epoll。100 輪時 epoll 勝出，500 輪時 poll 領先，1,000 輪時遙遙領先。\
                       它的 epoll 程式對每個事件都從陣列開頭尋找其紀錄；而 poll 的索引就是紀錄的索引。決定勝負的是系統呼叫，\
                       還是通往紀錄的路？",
            expectation: "以 C 寫成的回聲伺服器，分別用 poll 與 epoll（水平觸發與邊緣觸發）等待；epoll 的伺服器，一種像報告那樣\
                          以搜尋找到紀錄，一種使用事件裡的索引。另有一種由排入佇列的訊號（O_ASYNC）告知每個事件；Encke 的 reactor 在每個後端上做同樣的事。每一輪有一部分連線各收到 \
                          1,024 位元組，全部在伺服器查看之前送達；計算它接收並回應所用的 CPU 時間。其中兩列由 50 個執行緒在伺服器的處理器上同時送出訊息：報告的客戶端就是執行緒。連線數與報告相同，或以檔案描述子\
                          上限所允許的為準（每條連線要兩個）；連線越少，搜尋與 poll 的代價就越小。\n\n預期 poll 不論有多少連線活躍，\
                          代價都一樣；搜尋對每個事件要花全部紀錄的一半；索引則不花什麼。所以，活躍連線很少時，任何 epoll 都勝出；\
                          全部活躍時，搜尋的會輸給 poll，不搜尋的不會。重複 100、500 或 1,000 輪，在這裡不會改變任何事。\
                          每個事件一個訊號，比一次得知許多事件更貴；客戶端若是執行緒，伺服器每次只為少數訊息醒來，一切都變得模糊。",
            lesson: "從事件到它的連線必須一步到位；單憑多工機制決定不了什麼。在 Encke 裡，事件帶著連線的位置與世代。",
            claims: &[
                "全部活躍：poll 所需時間至多是搜尋式 epoll 的 0.9。",
                "少數活躍：即使要搜尋，epoll 也至多花 poll 一半的時間。",
                "有了索引，epoll 所需時間從不超過 poll 的 1.3 倍。",
                "全部活躍：有索引的 epoll 至多花搜尋式的 0.8。",
                "全部活躍：epoll 上的 Encke 所需時間不超過搜尋式 epoll。",
                "少數活躍：epoll 上的 Encke 至多花 poll 一半的時間。",
            ],
        },
        ExperimentText {
            name: "parser",
            title: "請求的標頭如何讀取",
            question: "一份關於小型邊緣觸發伺服器的報告發現，以 computed goto 取代 switch 讓它的剖析器變快，而且環形緩衝區的大小\
                       應該是二的次方。兩者之中哪一個重要？逐位元組查看的剖析器，離可能的極限有多遠？",
            expectation: "同一份文法只寫一次，以每一種尋找下一個狀態的方法、每一種尋找下一個位元組的方法分別編譯，其他完全相同。\
                          旁邊是兩個知名的剖析器，以及 Encke 的；後者還決定伺服器必須知道的事：主體長度、連線是否保持、主機。\
                          \n\n預期遮罩重要，computed goto 則否：現代處理器很會預測 switch 的跳躍，而標籤表讓每個位元組多一次載入。\
                          threaded goto 直接跳到標籤，不必查表；是否因此更快，取決於編譯器、處理器，以及程式碼落在哪裡。\
                          向量指令一次看 32 個位元組，所以欄位越長，預期勝得越多。",
            lesson: "決定勝負的是每個位元組要走幾步。遮罩從每個位元組拿掉一次乘法、一次位移和一次減法；向量指令則拿掉位元組本身。",
            claims: &[
                "使用遮罩時，逐位元組的剖析器對每個請求所需時間都最多為原來的 0.95。",
                "除法相同時，對瀏覽器的請求，computed goto 不比 switch 快。",
                "從 106 位元組起，Encke 所需時間約為報告中剖析器的一半或更少。",
                "對瀏覽器的請求，向量指令讓 Encke 的剖析器變快。",
                "對瀏覽器的請求，Encke 所需時間不超過 picohttpparser。",
                "對兩個短請求，Encke 所需時間至多是 picohttpparser 的 1.1 倍。",
            ],
        },
        ExperimentText {
            name: "ring",
            title: "遮罩換來什麼",
            question: "同一份報告讓環形緩衝區長 8,192 位元組，而不是 8,124，好讓位置以遮罩、而非除法變成存放處。這換來什麼？",
            expectation: "逐位元組讀取一個環形緩衝區，一次是別無他事，一次是在剖析器裡：以 % 常數、以 % 執行時才知道的大小、以比較、\
                          以遮罩。\n\n預期遮罩勝出，但請看差多少：編譯器早就把除以常數變成了乘法。昂貴的是真正的除法。",
            lesson: "讓環形緩衝區的大小是常數，而且是二的次方。若做不到，就比較並折返：那個分支幾乎總是預測正確。",
            claims: &[
                "單純讀取時，遮罩比 % 8124 快。",
                "在剖析器裡，遮罩比 % 8124 快。",
                "% 常數比 % 執行時才知道的大小快。",
            ],
        },
        ExperimentText {
            name: "timers",
            title: "每條連線一個期限的代價",
            question: "報告的伺服器把期限放在二元堆積裡，並採延遲刪除：不再有效的項目會留著，直到輪到它。連線活得久時，這要付出什麼代價？\
                       其他資料結構又如何？",
            expectation: "N 條連線各有一個 10 秒後的期限。每秒 100,000 個請求來自隨機的連線，每個都把自己連線的期限往後延；\
                          每 64 個請求之後，詢問有哪些到期。時間是推算的，不是等出來的。\n\n預期堆積與樹的代價隨連線數增加，\
                          幅度是對數再加上快取未命中；延遲刪除的堆積，預期項目會是連線數的好幾倍，因為每個被延後的都要留到成為最小的為止；\
                          計時輪的代價預期始終相同。（Encke 做得更少：它在連線裡延後，不去動計時輪。）",
            lesson: "幾乎總會延後的期限不需要順序。計時輪放棄 17 ms 的精確度，換來與 N 無關的代價。",
            claims: &[
                "在每一個 N，計時輪至多花延遲刪除堆積的 0.8。",
                "在每一個 N，計時輪至多花可刪除堆積的 0.8。",
                "在每一個 N，計時輪至多花有序樹的 0.8。",
            ],
        },
        ExperimentText {
            name: "trigger",
            title: "水平觸發與邊緣觸發",
            question: "水平觸發的 epoll，只要還有東西可讀，就會回報該檔案描述子；邊緣觸發的 epoll 在有東西到達時才回報。\
                       一次只讀兩個位元組的程式，看到的是什麼？",
            expectation: "`aabbcc` 到達，程式等待並讀取四個回合；接著 `dd` 到達，再四個回合。每一回合列出其中讀到的內容；- 表示沒有任何回報。\
                          \n\n預期邊緣只通知一次。此時若留下位元組沒讀，要到別的位元組到達才會知道：對 `dd` 的回應是 `bb`，之後的每個回應\
                          都遲了。",
            lesson: "使用邊緣觸發時，要讀到核心再也沒有資料為止。這為每個事件省下一次回報，也是不拿過時位元組來服務的唯一辦法。",
            claims: &[
                "水平觸發會一直回報到全部讀完：aa、bb、cc，然後 dd。",
                "邊緣觸發只回報一次；dd 到達時，讀到的是 bb。",
                "讀到見底的程式什麼都不會漏掉，而且只被通知一次。",
            ],
        },
        ExperimentText {
            name: "zerocopy",
            title: "傳送一個檔案的代價",
            question: "一份報告把 sendfile 移植到缺少它的系統，伺服器傳送 2.4 MB 圖片的速度變成兩倍。每一種傳送檔案的方法各在哪裡勝出？",
            expectation: "核心快取裡的檔案，經由 loopback 傳給一個收到就丟的對象：讀進 4 KiB 或 64 KiB 的緩衝區再寫出；映射後寫出；\
                          用 sendfile；用 splice 穿過管線；用 MSG_ZEROCOPY；用 io_uring，一次系統呼叫讀取並送出 4 個 64 KiB；以及 Encke 的做法，檔案之前還有 200 位元組的標頭。\
                          計算的是傳送端的 CPU 時間，依檔案大小排列。\n\n檔案越大，預期 sendfile 勝得越多；檔案小到多一次系統呼叫\
                          比一次複製還重時，它會輸。對 MSG_ZEROCOPY 不要期待太多：在 loopback 上，核心終究還是要複製。\
                          io_uring 省去系統呼叫，複製則與讀寫一樣多。",
            lesson: "有兩種代價：系統呼叫，對小檔案重；複製，對大檔案重。小緩衝區兩者都要付。不論背後是什麼應用程式，sendfile 都省去複製；\
                     loopback 上每個分頁都各自計帳，映射的檔案可能與它不相上下。小檔案最好從記憶體複製一次：小於 8 KiB 的檔案，\
                     Encke 從快取送出。",
            claims: &[
                "對這張圖片，Encke 至多需要 read 加 write（4 KiB）一半的 CPU 時間。",
                "對這張圖片，Encke 至多需要 read 加 write（64 KiB）CPU 時間的 0.7。",
                "對 64 KiB，sendfile 至多需要 read 加 write（64 KiB）CPU 時間的 0.7。",
                "對 1 KiB，read 加 write 與 sendfile 不相上下（至多是其時間的 1.1 倍）。",
                "在 loopback 上，對 64 KiB，sendfile 至多需要 MSG_ZEROCOPY 一半的 CPU 時間。",
            ],
        },
    ],
    names: &[
        // accept
        ("a request, as the server sees it (its inverse is the rate)", "伺服器所見每個請求，其倒數即速率"),
        ("clients at a time", "同時的用戶端數"),
        ("accept, always sleep 10 ms", "accept，總是睡 10 ms"),
        ("sleep 10 ms after an empty check", "沒人來時睡 10 ms"),
        ("poll, a thread a connection", "poll，每連線一個執行緒"),
        ("Encke's reactor on epoll", "Encke reactor，epoll"),
        ("Encke's reactor on poll", "Encke reactor，poll"),
        ("… on epoll, level", "… epoll 水平"),
        ("… on epoll, edge", "… epoll 邊緣"),
        ("WSAPoll, a thread a connection", "WSAPoll，每連線一個執行緒"),
        ("Encke's reactor on the socket driver", "Encke reactor，socket 驅動程式"),
        ("WSAPoll, by index, clients as threads", "WSAPoll，用索引，客戶端是執行緒"),
        ("WSAPoll, by index", "WSAPoll，用索引"),
        ("WSAPoll: level, 2 bytes a turn", "WSAPoll：水平，每回合 2 位元組"),
        ("… on io_uring", "… io_uring"),
        ("requests/s", "請求/秒"),
        ("threads a request", "執行緒/請求"),
        ("switches a request", "切換/請求"),
        ("wake-ups a second, idle", "喚醒/秒，閒置時"),
        ("CPU µs a request", "CPU µs/請求"),
        ("its thread panicked or could not start", "它的執行緒中途結束"),
        // processor counters
        (
            "this machine has no hardware counters for programs, like most virtual machines",
            "這台機器不讓程式看到這類計數器，虛擬機器通常如此",
        ),
        (
            "the kernel denies access to hardware counters: set kernel.perf_event_paranoid to 2 or less",
            "這裡不允許程式計數；kernel.perf_event_paranoid = 2 或更低即可",
        ),
        ("the kernel was built without perf_event_open", "核心編譯時未包含 perf_event_open"),
        // backlog
        ("a burst, until the last client is connected", "一波連線，至最後一個用戶端連上為止"),
        ("clients that connect at once", "同時連線的用戶端數"),
        ("{row}; the system allows {allowed}", "{row}，系統上限 {allowed}"),
        ("backlog 16", "backlog 16"),
        ("backlog 128", "backlog 128"),
        ("backlog 511, a common value", "backlog 511，常見的值"),
        ("backlog 4096, Encke's default", "backlog 4096，Encke 預設"),
        ("dropped", "丟棄"),
        ("connected, not accepted", "只有用戶端以為已連上"),
        ("{burst} at {backlog}: {time} s", "backlog {backlog}，一波 {burst}: {time} 秒"),
        (
            "{left} of {clients} were not connected within {seconds} s",
            "{clients} 個之中有 {left} 個未能在 {seconds} 秒內連上",
        ),
        // comet
        ("a message, from its publishing to the last receiver", "一則訊息，從發布到最後一人收到"),
        ("subscribed clients", "等待訊息的用戶端數"),
        ("{crowd} (the limit here)", "{crowd}（此處上限）"),
        ("long poll", "長輪詢"),
        ("event stream", "事件串流"),
        ("event stream, 1,000 connections allowed", "事件串流，限 1,000 條連線"),
        ("publish to first, ms", "發布至第一人收到，ms"),
        ("RSS a connection, bytes", "RSS/連線，位元組"),
        ("RSS of all connections, KB", "全部連線的 RSS，KB"),
        ("held", "容納"),
        ("measured only from 1,000 on, for memory", "這一列用來呈現 1,000 以後的記憶體"),
        ("measured only up to 2,000", "2,000 就足以呈現"),
        (
            "RSS beyond an empty server's at 1,000 and 2,000: {few} and {many} KB; with 1,000 allowed {few_cut} and {many_cut} KB",
            "1,000 與 2,000 時，超出空伺服器的 RSS：{few} KB 與 {many} KB；限 1,000 條時為 {few_cut} KB 與 {many_cut} KB",
        ),
        ("the report's", "報告的數值"),
        ("the round was not completed", "這一輪沒有走到最後"),
        ("{count} bytes", "{count} 位元組"),
        // fanout
        ("a delivery: one message to one subscriber", "一次遞送：一則訊息給一個訂閱者"),
        ("subscribers", "訂閱者數"),
        ("send each", "逐條 send"),
        ("8 messages in one writev each", "8 則訊息一次 writev"),
        ("… on io_uring, one submit for all", "… io_uring，全部一次提交"),
        ("Encke, a message a request", "Encke，每個請求一則訊息"),
        ("Encke, 8 messages a request", "Encke，每個請求 8 則訊息"),
        ("the server is not a separate process", "伺服器不是獨立的行程"),
        // mux
        ("an exchange", "一次往返"),
        ("poll, by index", "poll，用索引"),
        ("epoll level, by search", "epoll 水平，用搜尋"),
        ("epoll edge, by search", "epoll 邊緣，用搜尋"),
        ("epoll level, by index", "epoll 水平，用索引"),
        ("epoll edge, by index", "epoll 邊緣，用索引"),
        ("signals, by index", "訊號，用索引"),
        ("poll, by index, clients as threads", "poll，用索引，客戶端是執行緒"),
        ("epoll level, by search, clients as threads", "epoll 水平，用搜尋，客戶端是執行緒"),
        ("{active} of {connections}, {rounds} rounds", "{connections} 之中 {active}，{rounds} 輪"),
        ("all of {connections} active", "{connections} 全部活躍"),
        ("{active} of {connections} active", "{connections} 之中 {active} 活躍"),
        ("records checked", "查看的紀錄"),
        (
            "omitted because it takes too long; the other rows have as many rounds",
            "因耗時而省略；其他各列重複同樣多輪",
        ),
        // parser, ring
        ("a request", "一個請求"),
        ("a byte", "一個位元組"),
        ("4 KB of cookies", "4 KB 的 cookie"),
        ("switch, {place}", "switch，{place}"),
        ("computed goto, {place}", "computed goto，{place}"),
        ("threaded goto, {place}", "threaded goto，{place}"),
        ("Encke without vectors", "Encke，不用向量指令"),
        ("requires an x86-64 processor with SSE4.2", "需要具備 SSE4.2 的 x86-64 處理器"),
        ("% a size known at run time", "% 執行時才知的大小"),
        ("compare and reset", "比較並折返"),
        ("reading alone", "單純讀取"),
        ("in the parser", "在剖析器裡"),
        // timers
        ("a request that postpones its connection's deadline", "一個把連線期限往後延的請求"),
        (
            "connections with a deadline of {timeout} s, {rate} requests a second",
            "期限 {timeout} 秒的連線數（每秒 {rate} 個請求）",
        ),
        ("heap, lazy deletion", "堆積，延遲刪除"),
        ("heap with deletion", "堆積，可刪除"),
        ("ordered tree", "有序樹"),
        ("Encke's wheel", "Encke 計時輪"),
        ("bytes a timer", "位元組/計時器"),
        // trigger
        ("a trace", "一份軌跡"),
        ("level, 2 bytes a turn", "水平，每回合 2 位元組"),
        ("edge, 2 bytes a turn", "邊緣，每回合 2 位元組"),
        ("edge, drained, as Encke does", "邊緣，讀到見底，同 Encke"),
        ("after aabbcc", "aabbcc 之後"),
        ("after dd", "dd 之後"),
        ("this system has no epoll", "這個系統沒有 epoll"),
        // zerocopy
        ("a KiB of a file", "檔案每 KiB"),
        ("size of the file", "檔案大小"),
        ("read and write, {size}", "read 加 write，{size}"),
        ("mmap and write", "mmap 加 write"),
        ("io_uring: read and send, 64 KiB", "io_uring：讀取與送出，64 KiB"),
        ("Encke: head and file", "Encke：標頭與檔案"),
        ("no file or connection to measure with: {error}", "沒有可供測量的檔案或連線：{error}"),
        ("this system does not support this method: {error}", "這個系統無法這樣傳送：{error}"),
        ("the receiver has ended", "接收端已結束"),
    ],
};
