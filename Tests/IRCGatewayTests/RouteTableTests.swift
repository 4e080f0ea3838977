import IRCCodec
import IRCGateway
import Protection
import Testing

/// The table against the lists of verbs of the specifications and of the servers, typed in from their documents.
@Suite struct RouteTableTests {
    static let rfc = """
        PASS NICK USER OPER MODE SERVICE QUIT SQUIT JOIN PART TOPIC NAMES LIST INVITE KICK PRIVMSG NOTICE MOTD LUSERS \
        VERSION STATS LINKS TIME CONNECT TRACE ADMIN INFO SERVLIST SQUERY WHO WHOIS WHOWAS KILL PING PONG ERROR AWAY \
        REHASH DIE RESTART SUMMON USERS WALLOPS USERHOST ISON
        """
    static let ircv3 = """
        CAP AUTHENTICATE TAGMSG BATCH SETNAME MONITOR CHATHISTORY MARKREAD REDACT REGISTER VERIFY METADATA RENAME WEBIRC
        """
    static let servers = """
        KNOCK SILENCE ACCEPT DCCALLOW WATCH USERIP STARTTLS PROTOCTL CYCLE REMOVE HELPOP HELP MAP MODULES COMMANDS \
        GLOBOPS SATOPIC SAJOIN SAPART SANICK SAKICK SAMODE SAQUIT GLINE KLINE ZLINE QLINE ELINE RLINE SHUN CBAN TBAN \
        CHECK CLEARCHAN OJOIN UNINVITE VHOST TITLE SSLINFO SETHOST SETIDENT SETIDLE CHGHOST CHGIDENT CHGNAME SWHOIS \
        LOADMODULE UNLOADMODULE RELOADMODULE LOCKSERV UNLOCKSERV ALLTIME TLINE FILTER OPERMOTD MKPASSWD CHARCONV \
        DISCONNECT NICKSERV NS CHANSERV CS MEMOSERV MS OPERSERV OS BOTSERV BS HOSTSERV HS IDENTIFY RELAYMSG
        """

    @Test(arguments: (rfc + " " + ircv3 + " " + servers).split(separator: " ").map(String.init))
    func everyVerbOfAClientHasALabel(_ verb: String) {
        #expect(IRCRouteTable.client(VerbKey(verb)) != nil, "\(verb) has no label")
    }

    @Test(
        arguments: """
            PRIVMSG NOTICE TAGMSG NICK JOIN PART QUIT KICK MODE TOPIC INVITE KILL ERROR PING PONG CAP AUTHENTICATE BATCH \
            ACK ACCOUNT AWAY CHGHOST SETNAME FAIL WARN NOTE WALLOPS MARKREAD REDACT RENAME REGISTER VERIFY METADATA
            """.split(separator: " ").map(String.init))
    func everyVerbOfAServerHasALabel(_ verb: String) {
        #expect(IRCRouteTable.server(VerbKey(verb)) != nil, "\(verb) has no label")
    }

    /// The gateway acts on a verb in a `switch` by key, not by this table.
    @Test func verbsOfAServerThatPassAreUnchanged() throws {
        let world = try World(.hosted)
        let alice = world.connect("alice")
        world.send(alice, "JOIN #room")
        for route in IRCRouteTable.server where route.treatment == .pass {
            let line = ":bob!b@h \(route.verb) #room a :text"
            alice.read = []
            world.backend.send(alice.id, line)
            world.settle()
            #expect(alice.read == [line], "\(route.verb) does not pass")
        }
    }

    @Test func noVerbStandsTwice() {
        #expect(Set(IRCRouteTable.client.map(\.verb)).count == IRCRouteTable.client.count)
        #expect(Set(IRCRouteTable.server.map(\.verb)).count == IRCRouteTable.server.count)
    }

    @Test func noContentPassesUnchangedUnderHosted() {
        for route in IRCRouteTable.client where route.label == .content {
            #expect(route.hosted != .pass && route.hosted != .count, "\(route.verb) would pass")
        }
    }
}
