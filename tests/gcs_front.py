"""Google's XML interface before fake-gcs-server, which knows most of Google's JSON interface and little of XML.

Our client (object_store) speaks XML. fake-gcs-server 1.56 reads objects by XML and refuses to write them:
no PUT but of signed URLs, no `x-goog-if-generation-match`, no uploads in parts, no listing in pages or from
an offset, no errors in XML. This translates each to JSON; objects, generations and who wins a race are the
server's. Its own are parts of uploads until they are complete, and the check of who asks: a bearer token
must be signed (RS256) by the service account that the tests have.
"""

import base64
import dataclasses
import datetime
import hashlib
import http.client
import json
import threading
import urllib.parse
import uuid
import xml.etree.ElementTree as ET
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

# Google's are 1,000; with fewer, what the tests list has several pages.
PAGE = 20
UPLOADS_PAGE = 2
# Of an object's answer, what a reader is told of.
HEADERS = (
    "Accept-Ranges", "Content-Length", "Content-Range", "Content-Type", "ETag", "Last-Modified", "X-Goog-Generation",
)
META = "x-goog-meta-"


class Refused(Exception):
    """An answer that is an error, as Google writes it."""

    def __init__(self, status, code):
        super().__init__(code)
        self.status, self.code = status, code


@dataclasses.dataclass
class Upload:
    name: str
    begun: str
    parts: dict = dataclasses.field(default_factory=dict)


class Front(ThreadingHTTPServer):
    """Serves on a free port until `stop`; `upstream` is fake-gcs-server's host and port."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream, public_key):
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream, self.public_key = upstream, public_key
        self.uploads, self.tokens = {}, set()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def begin_upload(self, name):
        upload = uuid.uuid4().hex
        begun = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.uploads[upload] = Upload(name, begun)
        return upload

    def stop(self):
        self.shutdown()
        self.server_close()

    def knows(self, token):
        if token not in self.tokens:
            try:
                signed, _, signature = token.rpartition(".")
                signature = base64.urlsafe_b64decode(signature + "==")
                self.public_key.verify(signature, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            except (ValueError, InvalidSignature):
                return False
            self.tokens.add(token)
        return True

    def handle_error(self, request, client_address):
        """Clients that are killed are what tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.upstream = http.client.HTTPConnection(*self.server.upstream)

    def finish(self):
        self.upstream.close()
        super().finish()

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.answer_to(body)
        except Refused as error:
            text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{error.code}</Code></Error>"
            self.answer(error.status, text.encode())

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def answer_to(self, body):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self.server.knows(token):
            raise Refused(401, "AuthenticationRequired")
        path, _, query = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        bucket, _, name = path.removeprefix("/").partition("/")
        bucket, name = urllib.parse.unquote(bucket), urllib.parse.unquote(name)
        match self.command:
            case "GET" if not name and "uploads" in query:
                self.list_uploads(query)
            case "GET" if not name:
                self.list(bucket, query)
            case "GET" | "HEAD":
                self.read(bucket, name, query)
            case "PUT" if "uploadId" in query:
                tag = f'"{hashlib.md5(body).hexdigest()}"'
                self.upload(query).parts[int(query["partNumber"])] = (tag, body)
                self.answer(200, headers={"ETag": tag})
            case "PUT" if "x-goog-copy-source" not in self.headers:
                made = self.write(bucket, name, body)
                self.answer(200, headers={"ETag": f'"{made["etag"]}"', "x-goog-generation": made["generation"]})
            case "POST" if "uploads" in query:
                upload = self.server.begin_upload(name)
                self.answer_xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
            case "POST" if "uploadId" in query:
                made = self.write(bucket, name, self.whole(query, body))
                del self.server.uploads[query["uploadId"]]
                tag = escape(f'"{made["etag"]}"')
                generation = {"x-goog-generation": made["generation"]}
                self.answer_xml("CompleteMultipartUploadResult", f"<ETag>{tag}</ETag>", generation)
            case "DELETE" if "uploadId" in query:
                self.upload(query)
                del self.server.uploads[query["uploadId"]]
                self.answer(204)
            case "DELETE":
                self.ask("DELETE", f"/storage/v1/b/{quoted(bucket)}/o/{quoted(name)}", missing="NoSuchKey")
                self.answer(204)
            case _:
                raise Refused(501, "NotImplemented")

    def list(self, bucket, query):
        asked = {
            "prefix": query.get("prefix"), "delimiter": query.get("delimiter"),
            "startOffset": query.get("start-after"), "pageToken": query.get("continuation-token"),
            "maxResults": str(PAGE),
        }
        asked = urllib.parse.urlencode({k: v for k, v in asked.items() if v})
        _, page = self.ask("GET", f"/storage/v1/b/{quoted(bucket)}/o?{asked}", missing="NoSuchBucket")
        page = json.loads(page)
        items = [i for i in page.get("items", []) if i["name"] != query.get("start-after")]
        inside = "".join(
            f"<Contents><Key>{escape(i['name'])}</Key><Size>{i['size']}</Size><ETag>{escape(i['etag'])}</ETag>"
            f"<LastModified>{i['updated']}</LastModified></Contents>" for i in items
        )
        for folder in page.get("prefixes", []):
            inside += f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
        if more := page.get("nextPageToken"):
            inside += f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(more)}</NextContinuationToken>"
        self.answer_xml("ListBucketResult", inside)

    def read(self, bucket, name, query):
        path = f"/{quoted(bucket)}/{quoted(name)}"
        if "generation" in query:
            path += f"?generation={query['generation']}"
        sent = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
        response, body = self.ask(self.command, path, headers=sent, missing="NoSuchKey")
        tag = response.headers["ETag"]
        if self.headers.get("If-Match", tag) not in (tag, "*"):
            raise Refused(412, "PreconditionFailed")
        if self.headers.get("If-None-Match") in (tag, "*"):
            return self.answer(304, headers={"ETag": tag})
        headers = {key: response.headers[key] for key in HEADERS if key in response.headers}
        headers |= {k: v for k, v in response.headers.items() if k.lower().startswith(META)}
        self.answer(response.status, body, headers)

    def write(self, bucket, name, body):
        """Creates the object as the server's JSON interface does; the resource it became."""
        mark = uuid.uuid4().hex.encode()
        kind = self.headers.get("Content-Type", "application/octet-stream")
        meta = {k.lower().removeprefix(META): v for k, v in self.headers.items() if k.lower().startswith(META)}
        resource = json.dumps({"name": name, "contentType": kind, "metadata": meta}).encode()
        head = b"--%s\r\nContent-Type: %s\r\n\r\n"
        data = head % (mark, b"application/json") + resource + b"\r\n"
        data += head % (mark, kind.encode()) + body + b"\r\n--%s--\r\n" % mark
        asked = {"uploadType": "multipart", "name": name}
        if (only_if := self.headers.get("x-goog-if-generation-match")) is not None:
            asked["ifGenerationMatch"] = only_if
        path = f"/upload/storage/v1/b/{quoted(bucket)}/o?{urllib.parse.urlencode(asked)}"
        kind = {"Content-Type": f"multipart/related; boundary={mark.decode()}"}
        _, made = self.ask("POST", path, data, kind, missing="NoSuchBucket")
        return json.loads(made)

    def list_uploads(self, query):
        after = (query.get("key-marker", ""), query.get("upload-id-marker", ""))
        found = sorted(
            (upload.name, key, upload.begun) for key, upload in self.server.uploads.items()
            if upload.name.startswith(query.get("prefix", "")) and (upload.name, key) > after
        )
        inside = "<EncodingType>url</EncodingType>" + "".join(
            f"<Upload><Key>{urllib.parse.quote_plus(name)}</Key><UploadId>{key}</UploadId>"
            f"<Initiated>{begun}</Initiated></Upload>" for name, key, begun in found[:UPLOADS_PAGE]
        )
        if found[UPLOADS_PAGE:]:
            name, key, _ = found[UPLOADS_PAGE - 1]
            inside += "<IsTruncated>true</IsTruncated>"
            inside += f"<NextKeyMarker>{urllib.parse.quote_plus(name)}</NextKeyMarker>"
            inside += f"<NextUploadIdMarker>{key}</NextUploadIdMarker>"
        self.answer_xml("ListMultipartUploadsResult", inside)

    def upload(self, query):
        try:
            return self.server.uploads[query["uploadId"]]
        except KeyError:
            raise Refused(404, "NoSuchUpload") from None

    def whole(self, query, body):
        found, whole = self.upload(query).parts, []
        for part in ET.fromstring(body):
            tag, data = found.get(int(part.findtext("PartNumber")), (None, b""))
            if tag != part.findtext("ETag"):
                raise Refused(400, "InvalidPart")
            whole.append(data)
        return b"".join(whole)

    def ask(self, method, path, body=None, headers=None, missing="NoSuchKey"):
        """The server's answer; its refusals become Google's."""
        self.upstream.request(method, path, body, {"Host": "%s:%d" % self.server.upstream} | (headers or {}))
        response = self.upstream.getresponse()
        answer = response.read()
        match response.status:
            case 404:
                raise Refused(404, missing)
            case 412:
                raise Refused(412, "PreconditionFailed")
            case 416:
                raise Refused(416, "InvalidRange")
            case status if status >= 400:
                raise Refused(status, answer.decode(errors="replace"))
        return response, answer

    def answer_xml(self, element, inside, headers=None):
        text = f"<?xml version='1.0' encoding='UTF-8'?><{element}>{inside}</{element}>"
        self.answer(200, text.encode(), {"Content-Type": "application/xml"} | (headers or {}))

    def answer(self, status, body=b"", headers=None):
        self.send_response_only(status)
        headers = {"Content-Length": str(len(body))} | (headers or {})
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def quoted(text):
    return urllib.parse.quote(text, safe="")
