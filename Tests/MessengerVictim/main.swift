// A messenger in a process that is killed. What is accepted and shown it says on its standard output, a line each.
//
//     MessengerVictim SPOOL DIRECTORY NAME PEER write COUNT    sends numbered texts, and goes on sending
//     MessengerVictim SPOOL DIRECTORY NAME PEER read           takes what comes
//     MessengerVictim SPOOL DIRECTORY NAME PEER list           takes what has come, and lists the chat
//     MessengerVictim SPOOL DIRECTORY NAME PEER serve COUNT    sends long texts, and takes what comes
//     MessengerVictim SPOOL DIRECTORY NAME PEER gather COUNT   takes what comes until it has the history, and lists
//
// The first device of a name adds all others.
//
// A member of a group over a gateway, with the login of PAWL_TOKEN. PEERS are those to invite, separated by commas, or -:
//
//     MessengerVictim URL DIRECTORY NAME PEERS group           writes texts and files, and changes the group
//     MessengerVictim URL DIRECTORY NAME PEERS watch           takes what comes
//     MessengerVictim URL DIRECTORY NAME PEERS settle          reports the state of the group when it changes
//     MessengerVictim URL DIRECTORY NAME PEERS files           lists texts, reads files, and ends

import Foundation
import MessengerSpool
import PawlMessenger
import Synchronization

/// Says a line at once.
@Sendable func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

struct Handler: CypherMessengerEventHandler {
    func onCreateChatMessage(_ message: AnyChatMessage) async {
        guard !message.isOwn else { return say("own \(message.text)") }
        say("shown \(message.group == nil ? "" : message.id + " ")\(message.attachment?.name ?? message.text)")
    }
}

extension Handler {
    func onDeviceRegisteryRequest(_ config: UserDeviceConfig, messenger: CypherMessenger) async {
        try? await messenger.addDevice(config)
    }
}

let arguments = CommandLine.arguments
guard arguments.count >= 6 else { exit(2) }
let (spool, directory) = (arguments[1], arguments[2])
let (name, peer, mode) = (Username(arguments[3]), Username(arguments[4]), arguments[5])
let (gateway, token) = (URL(string: spool), ProcessInfo.processInfo.environment["PAWL_TOKEN"])
let made = Mutex<SpoolTransport?>(nil)
let messenger = try await CypherMessenger.registerMessenger(
    username: name, authenticationMethod: .identity, appPassword: "victim",
    usingTransport: { request in
        if let gateway, let token {
            return GatewayTransportClient(url: gateway, for: request) { _ in .bearer(token) }
        }
        let transport = SpoolTransport(spool, request)
        made.withLock { $0 = transport }
        return transport
    }, database: MessengerDatabase.directory(directory).with(.least), eventHandler: Handler())
say("open")
let others = arguments[4] == "-" ? [] : arguments[4].split(separator: ",").map { Username(String($0)) }
let member = GroupVictim(messenger: messenger, others: others, directory: directory)
let chat = messenger.createPrivateChat(with: peer)

/// All messages of the chat.
@Sendable func all() async throws -> [AnyChatMessage] {
    var (before, messages): (UInt64?, [AnyChatMessage]) = (nil, [])
    while case let page = try await chat.messages(before: before, limit: 200), let first = page.first {
        messages = page + messages
        before = first.order
    }
    return messages
}

/// Takes all that waits; sleeps if there is nothing.
@Sendable func take() async throws {
    if await made.withLock({ $0 })?.deliver() == 0 { try await Task.sleep(for: .milliseconds(5)) }
}

switch mode {
case "write":
    var number = try await chat.messages(limit: 1).last.flatMap { Int($0.text) } ?? 0
    for _ in 0..<(Int(arguments.last ?? "") ?? 0) {
        number += 1
        try await chat.sendText("\(number)")
        say("accepted \(number)")
    }
    say("written")
    while true { try await Task.sleep(for: .seconds(60)) }
case "read": while true { try await take() }
case "serve":
    let last = try await chat.messages(limit: 1).last?.text.split(separator: " ").first
    let first = (last.flatMap { Int($0) } ?? 0) + 1
    for number in first..<first + (Int(arguments.last ?? "") ?? 0) {
        try await chat.sendText("\(number) " + String(repeating: "x", count: 2000))
        say("accepted \(number)")
    }
    say("written")
    while true { try await take() }
case "group": try await member.write()
case "watch": try await member.watch()
case "settle": try await member.settle()
case "files": try await member.list()
default:
    if mode == "gather", let count = Int(arguments.last ?? "") {
        while true {
            try await take()
            if await !messenger.awaitsHistory(), try await all().count >= count { break }
        }
    }
    while await made.withLock({ $0 })?.deliver() ?? 0 > 0 {}
    for message in try await all() { say("text \(message.text) \(message.state)") }
    say("end")
    messenger.close()
}
