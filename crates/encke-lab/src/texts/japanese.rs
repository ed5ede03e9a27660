//! The texts in Japanese (日本語).

use super::{ExperimentText, Words};

pub(super) static WORDS: Words = Words {
    tag: "ja",
    title: "Encke の実験室",
    preface: "どの実験も、従来のやり方、改善策、そして Encke のやり方を、このマシンの上で、1 回の実行の中に並べて比べます。\
              数値はこのマシンのものです。別のマシンでも通用するのは比と形であり、大きさではありません。",
    machine: "{processors} × {processor}、{memory}、{system}、ディスクリプタ {descriptors} 個、C の検体は {compiler} でコンパイル",
    seed: "シード {seed}",
    reading: "数値は中央値です。その後ろは、同じラウンドの中で求めた先頭行に対する比です。~ は差が見られなかったこと、\
              つまり比の 95 % 区間が 1 を含むことを表します。– は、この環境ではその欄を測定できなかったことを表します。",
    question: "問い",
    expectation: "実験の内容と予想",
    seen: "観測結果",
    lesson: "教訓",
    yes: "見られた",
    no: "見られず",
    unclear: "不明",
    not_measured: "測定なし",
    ratio: "{compared}: {ratio}（{low}〜{high}）",
    baseline: "基準",
    differs: "差あり",
    no_difference: "差は見られない",
    untimed: "計時せず",
    too_few: "判定なし: {rounds} ラウンドのみ",
    absent: "測定不可: {reason}",
    cpu_time: "CPU 時間",
    wall_time: "実時間",
    times_of_kinds: "{time}（{unit}）。{rounds} ラウンド、{seconds} 秒。",
    times_of_amounts: "{time}（{unit}）、横軸は{axis}。{rounds} ラウンド、{seconds} 秒。",
    facts: "何が起きるかを順に示します。",
    counted: ["1 回あたり", "サイクル", "命令", "分岐予測ミス"],
    unoptimised: "最適化なしのビルド",
    not_optimised: "このプログラムは最適化なしでビルドされています。Encke 自身の行の数値に意味はありません。",
    experiments: &[
        ExperimentText {
            name: "accept",
            title: "接続してくる相手をサーバーはどう待つか",
            question: "あるリレーの設定サーバーは、負荷がどうであれ毎秒 94 リクエストしか処理できませんでした。accept ループが、\
                       一度確かめるたびに 10 ms 眠っていたからです。誰も来ていないときだけ眠るようにすると、クライアント \
                       1 つにつき 94 になりました。poll では約 2,000 になりましたが、クライアントが 4 つのときは 2 つのときより\
                       少なく、作者にもその理由は分かりませんでした。それぞれの待ち方にはどれだけのコストがかかるのでしょうか。\
                       そして、そのループには他に何が潜んでいるのでしょうか。",
            expectation: "報告にあった 3 つのループ（C で書いたもの）と、Encke のリアクター上のサーバーが、同じリクエストに同じ \
                          1,348 バイトを返します。c 個のクライアントが同時に、リクエストごとに新しい接続を張ります。サーバーも\
                          クライアントも、このプロセスのスレッドです。報告のループはどれも接続ごとにスレッドを起動し、Encke は 1 つも\
                          起動しません。時間は実時間です。スレッドの数とスレッド間の切り替えは、クライアントも含めたプロセス\
                          全体で数えます。\n\nsleep は法則として現れるはずです。先頭行のレートは 1/10 ms で頭打ちになり、\
                          2 行目ではクライアント 1 つごとに同じだけです。poll はそれを終わらせ、残るのはスレッドのはずです。プロセッサが\
                          少なければ、リクエストごとにスレッドが 1 つ増えると切り替えも増え、レートは頭打ちになって折れ曲がります。",
            lesson: "待ってよいのはリアクターだけです。仕事があればカーネルが知らせてくれます。そして、数マイクロ秒で終わる仕事に\
                     専用のスレッドは要りません。起動と切り替えのほうが長くかかるからです。",
            claims: &[
                "常に眠るループは、クライアントがいくつでも、毎秒 105 リクエストを超えない。",
                "誰も来ないときだけ眠る場合、クライアント 4 つの合計は 1 つのときの 2.5 倍以上になる。",
                "c = 1 では、poll の時間は 5 分の 1 以下である。",
                "epoll 上の Encke のリアクターは、どの c でも、接続ごとにスレッドを使う poll より短い時間で済む。",
                "epoll 上の Encke のリアクターの時間は、どの c でも、その 3 分の 1 以下である。",
            ],
        },
        ExperimentText {
            name: "backlog",
            title: "接続に 1 秒かかり始めるのはどこからか",
            question: "あるチャットの作者が、N 個のクライアントを一斉に接続させました。200 までは 1 つあたり 1 ms でしたが、約 230 からは\
                       数秒かかりました。listen のバックログは 128 で、フレームワークがそれを隠していました。バックログは何を\
                       決めるのでしょうか。そして、その境目はどれほど鋭いのでしょうか。",
            expectation: "サーバーが別の仕事で手が離せない間に、N 本の接続が一斉に始まります。その後サーバーは、残りがなくなるまで \
                          accept します。示すのは、最後のクライアントが接続できるまでの時間です。あわせて、カーネルが捨てた試みの数と、\
                          最後の時点で接続できたと信じているクライアントのうち、サーバーがまだ accept していなかった数を示します。\n\n\
                          バックログがバーストを受け止められる間は数ミリ秒のはずです。それを 1 つでも超えた試みは 1 秒を要するはずです。\
                          カーネルは黙って捨て、TCP は 1 秒後（RFC 6298）、さらに 2 秒後に再試行します。プログラムが何を\
                          要求しても、システムの net.core.somaxconn がやはり黙って切り詰めます。その場合は行にそう書かれます。",
            lesson: "バックログは、いくつ接続できるかではありません。よそ見をしている間にいくつ来てよいか、です。4,096 を要求し、\
                     システムにも許可させ、破棄のカウンターを見てください。Encke はそれを要求し、システムが切り詰めれば起動時に\
                     警告し、破棄を数えます。",
            claims: &[
                "バックログ 128 では、230 のバーストに 1 秒かかる。",
                "Encke の既定値では、同じバーストがその 5 分の 1 以下で済む。",
                "境目はバックログとともに動く。511 は 230 を受け止め、600 のバーストには 1 秒かかる。",
                "Encke の既定値は最大のバーストも受け止める。128 のときの 5 分の 1 以下で済む。",
            ],
        },
        ExperimentText {
            name: "comet",
            title: "チャットは何人を受け入れられるか",
            question: "あるチャットサーバーは、クライアントをロングポーリングで待たせました。50 人ならメッセージは 28 ms で全員に届き、\
                       1,000 人では 4.65 秒、2,000 人では 9.48 秒かかりました。チャットらしく感じられたのは 500 人までです。\
                       メモリはクライアントごとに 10 KB ずつ増え、1,000 人から 2,000 人の間ではほとんど増えませんでした。作者は\
                       その理由を説明していません。N 個のクライアントは、接続するとき、1 つのメッセージが語られるとき、そして待っている間に、\
                       どれだけのコストになるのでしょうか。",
            expectation: "サーバーを独立したプロセスとして起動します。N 個のクライアントは `encke load` のもので、このプロセスの 1 つのスレッドで\
                          動き、一斉に接続します。c は、最後のクライアントが応答を受けるまでの時間です。次に 64 バイトのメッセージを \
                          1 つ発行します。r は、それを最初に受け取ったクライアントから最後のクライアントまでの時間で、報告の測り方と同じです。\
                          その隣に、最初のクライアントがどれだけ待ったかを示します。全員が待っている間に、サーバーのアドレス空間（VSZ）と\
                          常駐メモリ（RSS）を読みます。その後、全員が去ります。次のラウンドではサーバーも新しくするので、メモリはその N 個の\
                          ものです。破線は報告の曲線で、作者のマシンと Perl のクライアントによるものです。\n\nc と r は N とともに増え、それより\
                          速くは増えず、バックログ 128 が生む 230 での段差もなく、r は報告の百分の一以下のはずです。メモリは接続ごとに\
                          増えるはずです。平らになるのは接続が増えないところです。最後の行は 1,000 までを許し、残りは断ります。",
            lesson: "待っている接続が、サーバー自身のメモリを数百バイトより多く抱える必要はありません。一度だけエンコードしたメッセージは、接続ごとに\
                     送信 1 回で済みます。だから、チャットの限界はもう 500 ではありません。平らになったメモリの曲線は、別の何かが尽きたことを\
                     語っています。報告では、1,000 接続の追加が 396 KB しか要しませんでした。報告自身の 1 接続 10 KB で割れば、38 ほどです。\
                     当時プロセスが既定で持てた 1,024 個のディスクリプタを、わずかに超える数です。同じフレームワークをディスクリプタ \
                     1,024 個で改めて試すと、2,000 のうち 1,015 のクライアントを受け入れ、メモリは同じように平らになりました。\
                     ディスクリプタを増やすと直線でした。残りは、ちょうど 4,096 に引き上げられたバックログの中で待っていました。本人たちの知る限り\
                     では、接続済みだったのです。",
            claims: &[
                "クライアント 2,000 では、どのトランスポートでも、r は報告の 9.48 秒の百分の一以下である。",
                "クライアント 2,000 では、どのトランスポートでも、c は報告の 2.62 秒の 5 分の 1 以下である。",
                "クライアント 500 では、誰も再試行を待たない。c は 1 秒を下回る。",
                "クライアント 2,000 では、1 接続がサーバーの常駐メモリに占めるのは 2 KB 以下である。",
                "1,000 から 2,000 の間でメモリが平らになるのは、1,000 だけを受け入れるときであり、そのときに限る。",
            ],
        },
        ExperimentText {
            name: "fanout",
            title: "全員に伝えるコスト",
            question: "1 つのメッセージを N 人の購読者に届けるには、N 回の送信が要ります。カーネルがそれに求める最小のコストはどれだけでしょうか。\
                       別の頼み方は何を節約し、サーバーはチャネル、履歴、フレームで何を上乗せするのでしょうか。",
            expectation: "ループバック上の N 本の接続を、他に何もしないスレッドが読みます。64 バイトのメッセージに、フレームにするための 2 バイトを\
                          付けて、それぞれに送ります。1 本ずつ順に send する、8 つのメッセージをまとめて writev する、上に何も載せない Encke の\
                          リアクターで epoll を使う、同じく io_uring を使う（1 回のシステムコールですべてを投入します）、そして独立したプロセスとしての \
                          Encke です。Encke はリクエストでメッセージを受け取り、N 本の WebSocket へ送ります。次のメッセージは、全員が\
                          これを受け取るまで待ちます。示すのは送信側の CPU 時間です。スレッドの、または、リクエストも含めた Encke の全スレッドの\
                          時間です。\n\nコストの大部分はどこでも send のはずです。TCP 自身の仕事であり、ループバックでは受信側の半分も含みます。\
                          1 つのメッセージを多数の TCP 接続へ一度に渡す呼び出しはありません。sendmmsg は 1 つのソケットのデータグラム用です。\
                          io_uring が節約するのはカーネルへの出入りであり、中で行う仕事ではありません。節約できるのは送信の回数です。購読者宛ての\
                          メッセージがいくつかあるなら、まとめて送ることです。",
            lesson: "下限を決めるのはカーネルで、1 人につき送信 1 回です。サーバーはその近くにとどまれば優秀で、送る回数を減らせば下限も下回ります。\
                     送信 1 回に 8 つのメッセージを載せても、1 つのときより少し高いだけです。Encke はメッセージを全員のために一度だけ\
                     エンコードし、購読者ごとにキューではなく位置を持ち、前回から届いたものをすべて 1 回の呼び出しで送ります。",
            claims: &[
                "8 つのメッセージを 1 回の writev で送る時間は、どの N でも、send 8 回の半分以下である。",
                "最大の N で、epoll 上の Encke のリアクターの時間は、send だけの 1.25 倍以下である。",
                "最大の N で、全員分を io_uring へ一度に投入する時間は、send だけの時間以下である。",
                "最大の N で、Encke 全体の時間は、send だけの 1.5 倍以下である。",
                "最大の N で、8 つのメッセージをまとめて発行したときの Encke の時間は、1 つずつのときの半分以下である。",
            ],
        },
        ExperimentText {
            name: "mux",
            title: "イベントから接続へ",
            question: "ある報告が、10,000 接続で poll と epoll を比べました。100 ラウンドでは epoll が勝ち、500 では poll が先行し、\
                       1,000 では大差をつけました。その epoll プログラムは、イベントごとにレコードを配列の先頭から探していました。\
                       poll のほうは、poll の添字がそのままレコードの添字でした。決め手はシステムコールでしょうか、それとも\
                       レコードへの道筋でしょうか。",
            expectation: "C で書いたエコーサーバーが、poll と、レベルトリガーおよびエッジトリガーの epoll で待ちます。epoll の\
                          サーバーは、レコードを報告と同じく探索で見つけるものと、イベントに入れた添字で見つけるものがあります。\
                          イベントごとにキューに入るシグナル（O_ASYNC）で知らせを受けるものが 1 つあり、\
                          Encke のリアクターも、各バックエンドの上で同じことをします。ラウンドごとに、接続の一部へ 1,024 バイトずつ、\
                          サーバーが見る前にすべて届けておき、受信と応答にかかったサーバーの CPU 時間を取ります。2 つの行では、報告のクライアントがスレッド\
                          だったように、サーバーと同じプロセッサの上の 50 本のスレッドが、その間にメッセージを送ります。接続数は報告と同じか、\
                          ディスクリプタの上限が許すだけです（1 接続に 2 つ要ります）。接続が少ないほど、探索と poll のコストは\
                          小さくなります。\n\npoll のコストはアクティブな接続がいくら少なくても同じ、探索はイベントごとに全レコードの半分、\
                          添字はコストなしのはずです。したがって、アクティブな接続が少なければどの epoll も勝ちます。すべてが\
                          アクティブなら、探索する epoll は poll に負け、探索しない epoll は負けません。ラウンドを 100 回、500 回、\
                          1,000 回と繰り返しても、ここでは何も変わりません。イベントごとのシグナルは、多くをまとめて知らされるより高くつきます。\
                          クライアントがスレッドなら、サーバーは少しのメッセージごとに起こされ、すべてがぼやけます。",
            lesson: "イベントから接続までは一歩でなければなりません。多重化の仕組みだけでは何も決まりません。Encke では、イベントが接続の\
                     位置と世代を運びます。",
            claims: &[
                "すべてアクティブ: poll の時間は、探索する epoll の 0.9 以下である。",
                "少数がアクティブ: 探索しても、epoll の時間は poll の半分以下である。",
                "添字を使えば、epoll の時間は poll の 1.3 倍を決して超えない。",
                "すべてアクティブ: 添字を使う epoll の時間は、探索する場合の 0.8 以下である。",
                "すべてアクティブ: epoll 上の Encke の時間は、探索する epoll 以下である。",
                "少数がアクティブ: epoll 上の Encke の時間は、poll の半分以下である。",
            ],
        },
        ExperimentText {
            name: "parser",
            title: "リクエストのヘッドはどう読まれるか",
            question: "小さなエッジトリガーサーバーについての報告が、switch の代わりに computed goto を使うとパーサーが速くなり、\
                       リングバッファーの大きさは 2 のべき乗にすべきだと述べました。どちらが効くのでしょうか。そして、すべてのバイトを\
                       見るパーサーは、可能な速さからどれほど離れているのでしょうか。",
            expectation: "ただ一度だけ書いた文法を、次の状態を見つける方法と次のバイトを見つける方法のそれぞれでコンパイルします。違いは\
                          それだけです。その隣に、よく知られた 2 つのパーサーと Encke のパーサーが並びます。Encke のパーサーは、\
                          サーバーが知らなければならないこと、つまりボディーの長さ、接続の持続、ホストも決めます。\n\nマスクは効き、\
                          computed goto は効かないはずです。現代のプロセッサは switch のジャンプをよく予測し、ラベルの表は 1 バイト\
                          ごとにロードを 1 つ増やします。threaded goto はラベルへ直接ジャンプするので、表を引きません。それが速いか\
                          どうかは、コンパイラー、プロセッサ、そしてコードがどこに置かれるか次第です。ベクトル命令は一度に 32 バイトを見る\
                          ので、フィールドが長いほど大きく勝つはずです。",
            lesson: "決め手は、1 バイトに何ステップかかるかです。マスクは 1 バイトごとに乗算、シフト、減算を 1 つずつ取り除きます。\
                     ベクトル命令はバイトそのものを取り除きます。",
            claims: &[
                "マスクを使うと、バイト単位のパーサーの時間は、どのリクエストでも 0.95 以下になる。",
                "除算が同じなら、ブラウザーのリクエストで computed goto は switch より速くない。",
                "Encke の時間は、106 バイト以上では、報告のパーサーの約半分かそれ以下である。",
                "ベクトル命令は、ブラウザーのリクエストで Encke のパーサーを速くする。",
                "ブラウザーのリクエストで、Encke の時間は picohttpparser 以下である。",
                "短い 2 つのリクエストで、Encke の時間は picohttpparser の 1.1 倍以下である。",
            ],
        },
        ExperimentText {
            name: "ring",
            title: "マスクで得られるもの",
            question: "同じ報告は、リングの大きさを 8,124 ではなく 8,192 バイトにしました。位置から場所を、除算ではなくマスクで求める\
                       ためです。それで何が得られるのでしょうか。",
            expectation: "リングを 1 バイトずつ、他に何もせずに、またパーサーの中で読みます。定数による %、実行時にしか分からない大きさ\
                          による %、比較、マスクの 4 通りです。\n\nマスクが勝つはずですが、差の大きさに注目してください。コンパイラーは、\
                          定数による除算をとうに乗算へ変えています。高くつくのは本物の除算です。",
            lesson: "リングの大きさは、定数の 2 のべき乗にしてください。できないなら、比較して先頭に戻してください。その分岐はほぼ常に予測が\
                     当たります。",
            claims: &[
                "読むだけなら、マスクは % 8124 より速い。",
                "パーサーの中でも、マスクは % 8124 より速い。",
                "定数による % は、実行時にしか分からない大きさによる % より速い。",
            ],
        },
        ExperimentText {
            name: "timers",
            title: "すべての接続に期限を設けるコスト",
            question: "報告のサーバーは、期限を二分ヒープに入れ、遅延削除します。もう有効でないエントリも、先頭に来るまで残ります。接続が長く\
                       続くとき、それにはどれだけのコストがかかるのでしょうか。他のデータ構造ではどうでしょうか。",
            expectation: "N 本の接続に、それぞれ 10 秒先の期限があります。ランダムな接続から毎秒 100,000 のリクエストが来て、そのたびに\
                          接続の期限を延ばします。64 回ごとに、期限切れのものを尋ねます。時間は計算で進め、実際には待ちません。\n\n\
                          ヒープと木は、接続が増えるほど、対数とキャッシュミスのぶんだけ高くつくはずです。遅延削除のヒープは接続数の数倍の\
                          エントリを抱えるはずです。延ばされた期限が、最小になるまで残るからです。ホイールのコストは常に同じはずです。\
                         （Encke の仕事はさらに少なく、期限を接続の中で延ばすだけで、ホイールには触りません。）",
            lesson: "ほぼ必ず延長される期限に、順序は要りません。ホイールは 17 ms の正確さと引き換えに、N によらないコストを手に入れます。",
            claims: &[
                "ホイールの時間は、どの N でも、遅延削除のヒープの 0.8 以下である。",
                "ホイールの時間は、どの N でも、削除できるヒープの 0.8 以下である。",
                "ホイールの時間は、どの N でも、順序木の 0.8 以下である。",
            ],
        },
        ExperimentText {
            name: "trigger",
            title: "レベルトリガーとエッジトリガー",
            question: "レベルトリガーの epoll は、読むものがある限りディスクリプタを報告します。エッジトリガーの epoll は、何かが届いたときに\
                       報告します。一度に 2 バイトずつ読むプログラムには、何が見えるでしょうか。",
            expectation: "`aabbcc` が届き、プログラムは 4 回のターンで待っては読みます。次に `dd` が届き、さらに 4 回です。ターンごとに、\
                          そこで読んだものを示します。- は何も報告されなかったことを表します。\n\nエッジは一度しか知らされないはずです。\
                          そこで読み残した者がそのバイトを知るのは、次のバイトが届いたときです。`dd` への応答は `bb` となり、その後の応答は\
                          すべて遅れます。",
            lesson: "エッジトリガーでは、カーネルにもう何もなくなるまで読んでください。イベントごとの報告が 1 つ減り、古いバイトを返さないための\
                     唯一の方法でもあります。",
            claims: &[
                "レベルはすべて読むまで報告する: aa、bb、cc、そして dd。",
                "エッジは一度だけ報告する。dd が届いたとき、読まれるのは bb である。",
                "読み切る者は何も逃さず、知らせは一度だけ受ける。",
            ],
        },
        ExperimentText {
            name: "zerocopy",
            title: "ファイルの送信にかかるコスト",
            question: "ある報告が、sendfile を持たないシステムにそれを移植したところ、そのサーバーは 2.4 MB の画像を 2 倍の速さで送りました。\
                       ファイルの送り方は、それぞれどこで勝つのでしょうか。",
            expectation: "カーネルのキャッシュにあるファイルを、ループバック越しに、受け取って捨てるだけの相手へ送ります。4 KiB と 64 KiB の\
                          バッファーに読んで書く、マップして書く、sendfile、パイプを通す splice、MSG_ZEROCOPY、64 KiB を 4 つ、1 回の\
                          システムコールで読んで送る io_uring、そして 200 バイトのヘッドを前に付ける Encke のやり方です。数えるのは送信側の CPU 時間で、ファイルの大きさごとに示します。\n\nsendfile は、\
                          ファイルが大きいほど大きく勝ち、余分なシステムコール 1 回がコピーより重いほど小さいファイルでは負けるはずです。\
                          MSG_ZEROCOPY には多くを期待しないでください。ループバックではカーネルが結局コピーします。\
                          io_uring はシステムコールを省きますが、コピーは read と write と同じだけします。",
            lesson: "コストは 2 つあります。小さいファイルではシステムコール、大きいファイルではコピーです。小さなバッファーには両方がかかります。\
                     sendfile は、背後のアプリケーションが何であれ、コピーを省きます。ページごとに勘定されるループバックでは、マップした\
                     ファイルがそれに並ぶこともあります。小さいファイルは、メモリから一度コピーするのが最良です。Encke は 8 KiB 未満のファイルを\
                     キャッシュから送ります。",
            claims: &[
                "画像について、Encke の CPU 時間は read と write（4 KiB）の半分以下である。",
                "画像について、Encke の CPU 時間は read と write（64 KiB）の 0.7 以下である。",
                "64 KiB について、sendfile の CPU 時間は read と write（64 KiB）の 0.7 以下である。",
                "1 KiB では、read と write は sendfile に並ぶ（時間は 1.1 倍以下）。",
                "ループバックでは、64 KiB について、sendfile の CPU 時間は MSG_ZEROCOPY の半分以下である。",
            ],
        },
    ],
    names: &[
        // accept
        (
            "a request, as the server sees it (its inverse is the rate)",
            "サーバーから見たリクエスト 1 件、逆数がレート",
        ),
        ("clients at a time", "同時クライアント数"),
        ("accept, always sleep 10 ms", "accept、常に 10 ms 眠る"),
        ("sleep 10 ms after an empty check", "誰も来ないとき 10 ms 眠る"),
        ("poll, a thread a connection", "poll、接続ごとにスレッド"),
        ("Encke's reactor on epoll", "Encke のリアクター、epoll"),
        ("Encke's reactor on poll", "Encke のリアクター、poll"),
        ("… on epoll, level", "… epoll レベル"),
        ("… on epoll, edge", "… epoll エッジ"),
        ("WSAPoll, a thread a connection", "WSAPoll、接続ごとにスレッド"),
        ("Encke's reactor on the socket driver", "Encke のリアクター、ソケットドライバー"),
        ("WSAPoll, by index, clients as threads", "WSAPoll、添字、クライアントはスレッド"),
        ("WSAPoll, by index", "WSAPoll、添字"),
        ("WSAPoll: level, 2 bytes a turn", "WSAPoll: レベル、1 ターン 2 バイト"),
        ("… on io_uring", "… io_uring"),
        ("requests/s", "リクエスト/秒"),
        ("threads a request", "スレッド/リクエスト"),
        ("switches a request", "切り替え/リクエスト"),
        ("wake-ups a second, idle", "起床/秒、アイドル時"),
        ("CPU µs a request", "CPU µs/リクエスト"),
        ("its thread panicked or could not start", "スレッドが途中で終了しました"),
        // processor counters
        (
            "this machine has no hardware counters for programs, like most virtual machines",
            "このマシンはその種のカウンターをプログラムに見せません。仮想マシンではよくあることです",
        ),
        (
            "the kernel denies access to hardware counters: set kernel.perf_event_paranoid to 2 or less",
            "ここではプログラムに計数が許されていません。kernel.perf_event_paranoid = 2 以下で許されます",
        ),
        (
            "the kernel was built without perf_event_open",
            "カーネルが perf_event_open なしでビルドされています",
        ),
        // backlog
        ("a burst, until the last client is connected", "最後のクライアントが接続できるまでのバースト 1 回"),
        ("clients that connect at once", "一斉に接続するクライアント数"),
        ("{row}; the system allows {allowed}", "{row}、システムの上限は {allowed}"),
        ("backlog 16", "バックログ 16"),
        ("backlog 128", "バックログ 128"),
        ("backlog 511, a common value", "バックログ 511、よくある値"),
        ("backlog 4096, Encke's default", "バックログ 4096、Encke の既定値"),
        ("dropped", "破棄"),
        ("connected, not accepted", "クライアントだけが接続と信じる"),
        ("{burst} at {backlog}: {time} s", "バックログ {backlog} に {burst}: {time} 秒"),
        (
            "{left} of {clients} were not connected within {seconds} s",
            "{clients} のうち {left} が {seconds} 秒以内に接続できませんでした",
        ),
        // comet
        ("a message, from its publishing to the last receiver", "メッセージ 1 件、発行から最後の受信者まで"),
        ("subscribed clients", "待ち受けるクライアント数"),
        ("{crowd} (the limit here)", "{crowd}（ここでの上限）"),
        ("long poll", "ロングポーリング"),
        ("event stream", "イベントストリーム"),
        ("event stream, 1,000 connections allowed", "イベントストリーム、1,000 接続まで"),
        ("publish to first, ms", "発行から最初の受信まで、ms"),
        ("RSS a connection, bytes", "RSS/接続、バイト"),
        ("RSS of all connections, KB", "全接続の RSS、KB"),
        ("held", "保持"),
        ("measured only from 1,000 on, for memory", "1,000 以降のメモリを示すための行です"),
        ("measured only up to 2,000", "2,000 で分かることです"),
        (
            "RSS beyond an empty server's at 1,000 and 2,000: {few} and {many} KB; with 1,000 allowed {few_cut} and {many_cut} KB",
            "1,000 と 2,000 で、空のサーバーを超える RSS: {few} KB と {many} KB。1,000 まで許す場合は {few_cut} KB と {many_cut} KB",
        ),
        ("the report's", "報告の値"),
        ("the round was not completed", "ラウンドが最後まで進みませんでした"),
        ("{count} bytes", "{count} バイト"),
        // fanout
        ("a delivery: one message to one subscriber", "配信 1 件、メッセージ 1 つを購読者 1 人へ"),
        ("subscribers", "購読者数"),
        ("send each", "1 本ずつ send"),
        ("8 messages in one writev each", "8 メッセージを 1 回の writev で"),
        ("… on io_uring, one submit for all", "… io_uring、全員分を一度に投入"),
        ("Encke, a message a request", "Encke、1 リクエストに 1 メッセージ"),
        ("Encke, 8 messages a request", "Encke、1 リクエストに 8 メッセージ"),
        ("the server is not a separate process", "サーバーが独立したプロセスではありません"),
        // mux
        ("an exchange", "やり取り 1 回"),
        ("poll, by index", "poll、添字"),
        ("epoll level, by search", "epoll レベル、探索"),
        ("epoll edge, by search", "epoll エッジ、探索"),
        ("epoll level, by index", "epoll レベル、添字"),
        ("epoll edge, by index", "epoll エッジ、添字"),
        ("signals, by index", "シグナル、添字"),
        ("poll, by index, clients as threads", "poll、添字、クライアントはスレッド"),
        ("epoll level, by search, clients as threads", "epoll レベル、探索、クライアントはスレッド"),
        ("{active} of {connections}, {rounds} rounds", "{connections} 中 {active}、{rounds} ラウンド"),
        ("all of {connections} active", "{connections} すべてアクティブ"),
        ("{active} of {connections} active", "{connections} 中 {active} がアクティブ"),
        ("records checked", "調べたレコード"),
        (
            "omitted because it takes too long; the other rows have as many rounds",
            "時間がかかるため省略。ほかの行は同じ回数を繰り返します",
        ),
        // parser, ring
        ("a request", "リクエスト 1 件"),
        ("a byte", "1 バイト"),
        ("4 KB of cookies", "4 KB の Cookie"),
        ("switch, {place}", "switch、{place}"),
        ("computed goto, {place}", "computed goto、{place}"),
        ("threaded goto, {place}", "threaded goto、{place}"),
        ("Encke without vectors", "Encke、ベクトル命令なし"),
        ("requires an x86-64 processor with SSE4.2", "SSE4.2 を備えた x86-64 プロセッサが必要です"),
        ("% a size known at run time", "% 実行時に決まる大きさ"),
        ("compare and reset", "比較して先頭に戻す"),
        ("reading alone", "読むだけ"),
        ("in the parser", "パーサーの中"),
        // timers
        ("a request that postpones its connection's deadline", "接続の期限を延ばすリクエスト 1 件"),
        (
            "connections with a deadline of {timeout} s, {rate} requests a second",
            "期限 {timeout} 秒の接続数（毎秒 {rate} リクエスト）",
        ),
        ("heap, lazy deletion", "ヒープ、遅延削除"),
        ("heap with deletion", "ヒープ、削除あり"),
        ("ordered tree", "順序木"),
        ("Encke's wheel", "Encke のホイール"),
        ("bytes a timer", "バイト/タイマー"),
        // trigger
        ("a trace", "トレース 1 つ"),
        ("level, 2 bytes a turn", "レベル、1 ターン 2 バイト"),
        ("edge, 2 bytes a turn", "エッジ、1 ターン 2 バイト"),
        ("edge, drained, as Encke does", "エッジ、読み切る（Encke 方式）"),
        ("after aabbcc", "aabbcc の後"),
        ("after dd", "dd の後"),
        ("this system has no epoll", "このシステムには epoll がありません"),
        // zerocopy
        ("a KiB of a file", "ファイル 1 KiB"),
        ("size of the file", "ファイルの大きさ"),
        ("read and write, {size}", "read と write、{size}"),
        ("mmap and write", "mmap と write"),
        ("io_uring: read and send, 64 KiB", "io_uring: read と send、64 KiB"),
        ("Encke: head and file", "Encke: ヘッドとファイル"),
        ("no file or connection to measure with: {error}", "測定に使うファイルか接続がありません: {error}"),
        (
            "this system does not support this method: {error}",
            "このシステムではこの方法で送れません: {error}",
        ),
        ("the receiver has ended", "受信側が終了しました"),
    ],
};
